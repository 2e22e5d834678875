"""Accuracy on the two spirals stays near 65 %, with any number of layers.

Cause: the hidden layers have no activation, so the whole model is one linear map.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(12)
rng = np.random.default_rng(12)

t = np.sqrt(rng.uniform(0.02, 1, 400)) * 1.2 * 2 * np.pi
arm = np.stack([t * np.cos(t), t * np.sin(t)], 1) / 8 + rng.normal(0, 0.02, (400, 2))
data = np.concatenate([arm, -arm])
labels = np.concatenate([np.zeros(400), np.ones(400)])

act = "relu" if FIXED else None
inputs = keras.Input((2,))
x = inputs
for units in (64, 64, 32):
    x = layers.Dense(units, activation=act)(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
net = keras.Model(inputs, outputs)
net.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
net.fit(data, labels, batch_size=64, epochs=20, verbose=0)
print("loss, accuracy:", net.evaluate(data, labels, verbose=0))
