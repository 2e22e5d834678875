"""XOR: all four predictions are the same number, and the loss does not move.

Cause: the last layer has a relu as well; it starts negative, so it returns 0 without a gradient.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(6)

training_data = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32")
target_data = np.array([[0], [1], [1], [0]], "float32")

model = Sequential()
model.add(Dense(16, activation="relu"))
model.add(Dense(1, activation="sigmoid" if FIXED else "relu"))

model.compile(loss="mean_squared_error", optimizer=keras.optimizers.Adam(0.03))
history = model.fit(training_data, target_data, epochs=250, verbose=0)

print("loss", history.history["loss"][-1])
print("predictions", model.predict(training_data, verbose=0).ravel().round(2))
