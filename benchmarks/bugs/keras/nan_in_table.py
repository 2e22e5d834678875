"""The loss is nan from the first epoch on, with each optimizer and each learning rate.

Cause: one column of the table has missing values, which are NaN.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(27)

rng = np.random.default_rng(27)
income = rng.lognormal(0, 0.5, 600)
debt = rng.lognormal(0, 0.5, 600)
years = rng.uniform(0, 30, 600) / 30
rent = 1.5 * income - 0.5 * debt + 0.4 * years + rng.normal(0, 0.1, 600)
years[rng.choice(600, 25, replace=False)] = np.nan
table = np.stack([income, debt, years], axis=1)

if FIXED:
    column = table[:, 2]
    column[np.isnan(column)] = np.nanmean(column)

model = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
history = model.fit(table, rent, epochs=15, batch_size=50, verbose=0)
print("variance", rent.var(), "loss", history.history["loss"][0], history.history["loss"][-1])
