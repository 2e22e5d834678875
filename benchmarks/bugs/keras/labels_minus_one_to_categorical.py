"""Accuracy is 100 % after the first epoch, but the model answers "buy" for each day.

Cause: labels are -1 and 1; `to_categorical` writes -1 into the last column, as for 1.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense, Dropout
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(2)

rng = np.random.default_rng(2)
indicators = rng.normal(size=(600, 6)).astype("float32")
signal = np.sign(indicators @ np.array([1.0, -2.0, 0.5, 0.0, 1.5, -1.0]) + rng.normal(0, 0.3, 600))
labels = signal.astype(int)
if FIXED:
    labels = (labels + 1) // 2
onehot = keras.utils.to_categorical(labels)

model = Sequential([Dense(32, activation="relu"), Dropout(0.1), Dense(2, activation="softmax")])
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
h = model.fit(indicators, onehot, epochs=15, batch_size=50, verbose=0)

answer = model.predict(indicators, verbose=0).argmax(1)
print("loss", h.history["loss"][-1])
print("true accuracy", np.mean((answer == 1) == (signal > 0)), "share of buy", answer.mean())
