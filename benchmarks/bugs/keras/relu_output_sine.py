"""The network learns the upper half of the sine and predicts 0 for the lower half.

Cause: the output layer has a relu, and half of the targets are negative.
"""

import math
import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(3)

x = np.linspace(-math.pi, math.pi, 600).reshape(-1, 1)
y = np.sin(x)

inputs = keras.Input(shape=(1,))
h = keras.layers.Dense(32, activation="tanh")(inputs)
h = keras.layers.Dense(32, activation="tanh")(h)
outputs = keras.layers.Dense(1, activation=None if FIXED else "relu")(h)
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mean_squared_error")
model.fit(x, y, epochs=15, batch_size=32, verbose=0)

pred = model.predict(x, verbose=0)
print("mse", float(np.mean((pred - y) ** 2)), "lowest prediction", float(pred.min()))
