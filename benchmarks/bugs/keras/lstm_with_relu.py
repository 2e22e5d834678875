"""The loss of the LSTM jumps to huge numbers in the first epoch and stays far too high.

Cause: `activation="relu"` in the LSTM; its state grows over 60 steps without a bound.
"""

import sys

import keras
import numpy as np
from keras.layers import LSTM, Dense

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(41)
rng = np.random.default_rng(41)

price = np.cumsum(rng.normal(0.2, 1, 900)) + 150
length = 60
frames = np.stack([price[i : i + length] for i in range(0, 840, 2)])
base = frames[:, -1:]
change = price[np.arange(0, 840, 2) + length][:, None] - base
X = ((frames - base) / 2)[..., None]
y = X[:, -10:, 0].mean(axis=1) + 0.05 * change[:, 0]

model = keras.Sequential()
model.add(keras.Input((length, 1)))
model.add(LSTM(48, activation="tanh" if FIXED else "relu"))
model.add(Dense(1))
model.compile(optimizer=keras.optimizers.RMSprop(0.01), loss="mse")
h = model.fit(X, y, epochs=5, batch_size=35, verbose=0)
print("variance", y.var(), "loss", h.history["loss"])
