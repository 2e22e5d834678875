"""The network is no better than random weights, and `summary` shows few parameters.

Cause: my own layer keeps its matrices as plain tensors instead of `add_weight`: never trained.
"""

import sys

import keras
import numpy as np
from keras import layers, ops

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(54)
rng = np.random.default_rng(54)


class Projection(layers.Layer):
    def __init__(self, n_in, n_out):
        super().__init__()
        if FIXED:
            self.w = self.add_weight(shape=(n_in, n_out), initializer="he_normal")
        else:
            self.w = keras.random.normal((n_in, n_out), stddev=0.05)

    def call(self, x):
        return ops.relu(ops.matmul(x, self.w))


x = rng.normal(size=(800, 12))
y = (np.abs(x[:, 0]) > np.abs(x[:, 1])).astype("float32")
model = keras.Sequential(
    [Projection(12, 24), Projection(24, 24), layers.Dense(1, activation="sigmoid")]
)
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=40, epochs=12, verbose=0)
print("parameters", model.count_params(), "loss, accuracy:", model.evaluate(x, y, verbose=0))
