"""The loss is in the millions, and the network predicts about 0 for each shop.

Cause: mean absolute percentage error, but on some days the sales are 0.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(58)
rng = np.random.default_rng(58)

weekday = rng.integers(0, 7, 1000)
staff = rng.integers(1, 6, 1000)
rain = rng.uniform(0, 1, 1000)
sales = 10 * staff + 8 * (weekday == 5) - 12 * rain + rng.normal(0, 3, 1000)
sales[weekday == 6] = 0.0  # closed
X = np.concatenate([np.eye(7)[weekday], (staff[:, None] - 3) / 2, rain[:, None]], axis=1)

model = keras.Sequential()
model.add(Dense(64, activation="relu"))
model.add(Dense(1))
loss = "mean_absolute_error" if FIXED else "mean_absolute_percentage_error"
model.compile(optimizer=keras.optimizers.Adam(0.02), loss=loss, metrics=["mae"])
h = model.fit(X, sales, batch_size=50, epochs=12, verbose=0).history
print("loss", h["loss"][-1], "mae", h["mae"][-1], "mean of sales", sales.mean())
