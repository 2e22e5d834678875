"""The forecast of tomorrow's temperature is 1.0 for each day.

Cause: a tanh output cannot leave [-1, 1], but the temperatures are between 0 and 35 degrees.
"""

import sys

import keras
import numpy as np
from keras.layers import LSTM, Dense

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(11)

rng = np.random.default_rng(11)
days = np.arange(900)
temperature = 17 + 12 * np.sin(2 * np.pi * days / 120) + rng.normal(0, 1.0, 900)

window = 10
X = np.array([temperature[i : i + window] for i in range(len(temperature) - window)])
y = temperature[window:]
X = ((X - X.mean()) / X.std())[..., None]

model = keras.Sequential()
model.add(keras.Input((window, 1)))
model.add(LSTM(24))
model.add(Dense(1) if FIXED else Dense(1, activation="tanh"))
model.compile(loss="mse", optimizer=keras.optimizers.Adam(0.02), metrics=["mae"])
model.fit(X, y, epochs=8, batch_size=32, verbose=0)
mse, mae = model.evaluate(X, y, verbose=0)
print(f"mse {mse:.2f} mae {mae:.2f} predictions {model.predict(X[:3], verbose=0).ravel()}")
