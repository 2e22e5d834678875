"""The digit network stays at the accuracy of chance, with a loss above 10.

Cause: the pixels are 0 to 255 instead of 0 to 1.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(8)
rng = np.random.default_rng(8)

strokes = (rng.uniform(size=(10, 20, 20)) < 0.25) * 200
y_train = rng.integers(0, 10, 1500)
x_train = strokes[y_train] + rng.integers(0, 56, (1500, 20, 20))
x_train = x_train.astype("float32")
if FIXED:
    x_train /= 255.0

model = keras.models.Sequential(
    [
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer=keras.optimizers.SGD(learning_rate=0.05),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(x_train, y_train, epochs=4, batch_size=50, verbose=0)
print("loss, accuracy:", model.evaluate(x_train, y_train, verbose=0))
