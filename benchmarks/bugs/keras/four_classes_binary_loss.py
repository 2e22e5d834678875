"""The loss is negative and falls without end, and accuracy stays low.

Cause: labels 0 to 3 with one unit and binary cross-entropy.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(4)
rng = np.random.default_rng(4)
centres = np.array([[2, 2], [-2, 2], [-2, -2], [2, -2]])
quality = rng.integers(0, 4, 800)
features = centres[quality] + rng.normal(0, 0.8, (800, 2))

model = keras.Sequential([layers.Dense(20, activation="relu"), layers.Dense(20, activation="relu")])
if FIXED:
    model.add(layers.Dense(4, activation="softmax"))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
else:
    model.add(layers.Dense(1))
    binary_loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile("adam", binary_loss, metrics=["accuracy"])
model.fit(features, quality, epochs=15, batch_size=50, verbose=0)
print("loss, accuracy:", model.evaluate(features, quality, verbose=0))
