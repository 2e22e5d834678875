"""The loss of the house price network stays at 10^11, and each prediction is far below each price.

Cause: prices in the 100,000s are not scaled, so Adam's steps of 0.001 never get there.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(20)

rng = np.random.default_rng(20)
n = 1000
area = rng.normal(120, 35, n).clip(30)
rooms = (area / 30 + rng.normal(0, 0.7, n)).round()
age = rng.uniform(0, 90, n)
price = 2800 * area + 9000 * rooms - 1100 * age + 60000 + rng.normal(0, 15000, n)

X = np.column_stack([area, rooms, age])
X = (X - X.mean(axis=0)) / X.std(axis=0)
scale = price.std() if FIXED else 1
offset = price.mean() if FIXED else 0
y = (price - offset) / scale

model = keras.Sequential()
model.add(layers.Dense(64, activation="relu"))
model.add(layers.Dense(64, activation="relu"))
model.add(layers.Dense(1))
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
history = model.fit(X, y, epochs=10, batch_size=50, validation_split=0.2, verbose=0)
predicted = model.predict(X, verbose=0).ravel() * scale + offset
print("loss", history.history["loss"][-1], "mean error", np.abs(predicted - price).mean())
