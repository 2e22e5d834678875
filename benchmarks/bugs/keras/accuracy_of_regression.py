"""Accuracy is 0.0 in each epoch although the loss goes down.

Cause: only the metric: accuracy counts equal numbers, which a regression never has.
Nothing is wrong with the training itself; the fix changes the metric alone.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(31)
rng = np.random.default_rng(31)

X = rng.normal(size=(500, 4))
y = X @ np.array([1.0, -2.0, 0.5, 3.0]) + rng.normal(0, 0.1, 500)

model = Sequential()
model.add(Dense(16, input_dim=4, activation="relu"))
model.add(Dense(1, activation="linear"))
metric = "mean_absolute_error" if FIXED else "accuracy"
model.compile(loss="mse", optimizer=keras.optimizers.Adam(0.01), metrics=[metric])
history = model.fit(X, y, epochs=12, batch_size=25, verbose=0).history
print("loss", history["loss"][-1], metric, history[metric][-1])
