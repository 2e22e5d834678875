"""The loss is nan after the first epoch of a simple regression.

Cause: year and mileage are not scaled, so plain SGD diverges.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(21)
rng = np.random.default_rng(21)

year = rng.integers(1995, 2024, 500)
mileage = rng.uniform(1e3, 2e5, 500)
price = 0.9 * (year - 1990) - 5e-5 * mileage + rng.normal(0, 1, 500)  # in thousands
X_train = np.stack([year, mileage], axis=-1).astype("float32")

if FIXED:
    mean, std = X_train.mean(axis=0), X_train.std(axis=0)
    X_train = (X_train - mean) / std

regressor = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
regressor.compile(optimizer="sgd", loss="mean_squared_error")
history = regressor.fit(X_train, price, batch_size=25, epochs=10, verbose=0)
print("loss per epoch", [round(v, 2) for v in history.history["loss"]])
