"""Transfer learning: not a digit of the loss changes between epochs.

Cause: the loop that freezes the base runs after the new head was added, so it freezes all layers.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(23)
rng = np.random.default_rng(23)


def blobs(n, classes, shift):
    label = rng.integers(0, classes, n)
    image = rng.normal(0, 0.3, (n, 12, 12, 1))
    for i, k in enumerate(label):
        row, col = divmod((k + shift) % 9, 3)
        image[i, 4 * row : 4 * row + 4, 4 * col : 4 * col + 4] += 1
    return image, label


model = keras.Sequential([layers.Input((12, 12, 1)), layers.Conv2D(8, 3, activation="relu")])
model.add(layers.Flatten())
model.add(layers.Dense(6, activation="softmax"))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(*blobs(480, 6, 0), batch_size=32, epochs=3, verbose=0)  # the "pretrained" base

model.pop()
base = list(model.layers)
model.add(layers.Dense(3, activation="softmax"))
for layer in base if FIXED else model.layers:
    layer.trainable = False
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
h = model.fit(*blobs(640, 3, 5), batch_size=32, epochs=7, verbose=0)
print("loss", h.history["loss"], "accuracy", h.history["accuracy"][-1])
