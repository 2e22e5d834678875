"""Two-branch functional model that predicts made-up house prices from numbers and a district, in the manner of Keras' functional API guide."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)

# area, rooms, age, distance to the centre, energy class; price in units of 100,000
n, districts = 3000, 12
rng = np.random.default_rng(seed)
area = rng.gamma(9.0, 11.0, n)
rooms = np.clip(np.round(area / 28 + rng.normal(0, 0.7, n)), 1, 8)
age = rng.uniform(0, 90, n)
distance = rng.exponential(6.0, n)
energy = rng.integers(0, 5, n)
district = rng.integers(0, districts, n)
level = rng.uniform(0.7, 1.5, districts)
price = (
    level[district] * area * 0.03 * np.exp(-0.03 * distance) * (1 - 0.003 * age)
    + 0.1 * rooms
    - 0.05 * energy
)
price = (price + rng.normal(0, 0.15, n)).astype("float32")
numbers = np.stack([area, rooms, age, distance, energy], axis=1).astype("float32")

cut = int(0.8 * n)
normalizer = layers.Normalization()
normalizer.adapt(numbers[:cut])

number_input = keras.Input(shape=(5,), name="numbers")
district_input = keras.Input(shape=(1,), dtype="int32", name="district")
x1 = layers.Dense(32, activation="relu")(normalizer(number_input))
x2 = layers.Flatten()(layers.Embedding(districts, 4)(district_input))
x = layers.concatenate([x1, x2])
x = layers.Dense(32, activation="relu")(x)
x = layers.Dense(16, activation="relu")(x)
output = layers.Dense(1, name="price")(x)
model = keras.Model([number_input, district_input], output)

model.compile(optimizer=keras.optimizers.RMSprop(1e-3), loss="mse", metrics=["mae"])
history = model.fit(
    {"numbers": numbers[:cut], "district": district[:cut, None]},
    price[:cut],
    validation_data=({"numbers": numbers[cut:], "district": district[cut:, None]}, price[cut:]),
    epochs=30,
    batch_size=64,
    verbose=2,
)
print("standard deviation of prices", price.std())
print("validation mae", history.history["val_mae"][-1])
