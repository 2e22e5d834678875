"""The loss falls to 0.69 and stays there; all outputs are 0.5.

Cause: the weight penalty `l2(1.0)` is stronger than the cross-entropy, so all weights go to 0.
"""

import sys

import keras
import numpy as np
from keras import layers, regularizers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(22)

rng = np.random.default_rng(22)
moon = rng.uniform(0, np.pi, 700)
which = rng.integers(0, 2, 700)
X = np.where(
    which[:, None] == 0,
    np.stack([np.cos(moon), np.sin(moon)], 1),
    np.stack([1 - np.cos(moon), 0.5 - np.sin(moon)], 1),
)
X += rng.normal(0, 0.1, X.shape)

penalty = regularizers.l2(1e-4 if FIXED else 1.0)
inp = layers.Input((2,))
z = layers.Dense(32, activation="relu", kernel_regularizer=penalty)(inp)
z = layers.Dense(32, activation="relu", kernel_regularizer=penalty)(z)
out = layers.Dense(1, activation="sigmoid", kernel_regularizer=penalty)(z)
model = keras.Model(inp, out)
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
model.fit(X, which, epochs=12, batch_size=50, verbose=0)
print("loss, accuracy:", model.evaluate(X, which, verbose=0))
