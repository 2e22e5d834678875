"""The convolutional network on colour images learns slowly and stays near 75 %.

Cause: images of shape (3, 24, 24) in a network for (rows, columns, channels), without transpose.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(60)
rng = np.random.default_rng(60)

n = 640
kind = rng.integers(0, 4, n)
images = rng.normal(0.4, 0.15, (n, 3, 24, 24))
for i in range(n):
    r, c = rng.integers(0, 18, 2)
    if kind[i] % 2:
        images[i, kind[i] // 2, r : r + 6, c : c + 2] += 0.9
    else:
        images[i, kind[i] // 2, r : r + 2, c : c + 6] += 0.9
if FIXED:
    images = np.transpose(images, (0, 2, 3, 1))

model = keras.Sequential([layers.Input(images.shape[1:])])
model.add(layers.Conv2D(12, 3, padding="same", activation="relu"))
model.add(layers.Conv2D(16, 3, padding="same", activation="relu"))
model.add(layers.GlobalMaxPooling2D())
model.add(layers.Dense(4, activation="softmax"))
model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
h = model.fit(images, kind, batch_size=32, epochs=8, validation_split=0.2, verbose=0).history
print({name: round(values[-1], 3) for name, values in h.items()})
