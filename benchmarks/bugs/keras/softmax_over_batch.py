"""Predictions of a row change with its batch, and each class sums to 1 over the rows.

Cause: `softmax(x, axis=0)` normalises over the batch instead of the classes.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(36)
rng = np.random.default_rng(36)


class Net(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.hidden = layers.Dense(40, activation="relu")
        self.out = layers.Dense(classes)

    def call(self, x):
        x = self.out(self.hidden(x))
        return keras.activations.softmax(x, axis=1 if FIXED else 0)


centres = rng.normal(0, 1.5, (4, 6))
c = rng.integers(0, 4, 640)
points = centres[c] + rng.normal(0, 0.7, (640, 6))
net = Net(4)
net.compile("adam", loss=keras.losses.CategoricalCrossentropy(), metrics=["accuracy"])
net.fit(points, keras.utils.to_categorical(c), batch_size=32, epochs=10, verbose=0)
alone = net.predict(points[:200], batch_size=1, verbose=0).argmax(axis=1)
print("loss, accuracy:", net.evaluate(points, keras.utils.to_categorical(c), verbose=0))
print("accuracy of single rows", (alone == c[:200]).mean())
