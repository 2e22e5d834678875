"""Two inputs (picture and number) and two outputs (their sum as a figure, and whether it is even) with several losses, in the manner of the Keras functional API guide."""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)

digits = load_digits()
rng = np.random.default_rng(seed)
order = rng.permutation(len(digits.target))
target = digits.target[order]
images = (digits.images[order] / 16).astype("float32")[..., None]
numbers = rng.uniform(0, 10, len(images)).astype("float32")[:, None]
total = (target[:, None] + numbers).astype("float32")
even = (target % 2 == 0).astype("float32")[:, None]

image_input = keras.Input(shape=(8, 8, 1), name="image")
number_input = keras.Input(shape=(1,), name="number")
x = layers.Conv2D(16, 3, activation="relu", padding="same")(image_input)
x = layers.MaxPooling2D(2)(x)
x = layers.Conv2D(32, 3, activation="relu")(x)
x = layers.Flatten()(x)
image_features = layers.Dense(32, activation="relu")(x)
number_features = layers.Dense(8, activation="relu")(layers.Rescaling(0.2, offset=-1)(number_input))
merged = layers.concatenate([image_features, number_features])
h = layers.Dense(32, activation="relu")(merged)
sum_output = layers.Dense(1, name="sum")(h)
even_output = layers.Dense(1, activation="sigmoid", name="even")(
    layers.Dropout(0.2)(image_features)
)
model = keras.Model([image_input, number_input], {"sum": sum_output, "even": even_output})

model.compile(
    optimizer=keras.optimizers.Adam(3e-3),
    loss={"sum": keras.losses.Huber(), "even": "binary_crossentropy"},
    loss_weights={"sum": 1.0, "even": 0.5},
    metrics={"sum": ["mae"], "even": ["accuracy"]},
)
n = 1400
history = model.fit(
    {"image": images[:n], "number": numbers[:n]},
    {"sum": total[:n], "even": even[:n]},
    validation_data=(
        {"image": images[n:], "number": numbers[n:]},
        {"sum": total[n:], "even": even[n:]},
    ),
    epochs=20,
    batch_size=32,
    verbose=2,
)
last = {k: round(v[-1], 4) for k, v in history.history.items() if k.startswith("val")}
print(last)
