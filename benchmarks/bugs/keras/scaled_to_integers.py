"""The loss of the digit network starts at log(10) and stays there.

Cause: the pixels are stored back into an integer array after the division by 255, so all are 0.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense, Flatten
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(44)
rng = np.random.default_rng(44)

shapes = rng.integers(0, 180, (10, 15, 15))
labels = rng.integers(0, 10, 1000)
digits = (shapes[labels] + rng.integers(0, 75, (1000, 15, 15))).astype(np.uint8)

if FIXED:
    digits = digits / 255
else:
    for i in range(len(digits)):
        digits[i] = digits[i] / 255

model = Sequential([Flatten(), Dense(100, activation="relu"), Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
h = model.fit(digits, labels, epochs=6, batch_size=50, verbose=0)
print("loss", h.history["loss"], "accuracy", h.history["accuracy"][-1])
