"""The diabetes classifier reports the same accuracy and nearly the same loss after each epoch.

Cause: softmax over a single unit always returns 1, so the model has one answer.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential

FIXED = "--fixed" in sys.argv

keras.utils.set_random_seed(7)
rng = np.random.default_rng(7)
X = rng.normal(size=(400, 8)).astype("float32")
Y = (X[:, 0] + 0.8 * X[:, 3] - X[:, 5] + 0.4 * rng.normal(size=400) > 0.5).astype("float32")

model = Sequential()
model.add(Dense(12, input_shape=(8,), activation="relu"))
model.add(Dense(8, activation="relu"))
if FIXED:
    model.add(Dense(1, activation="sigmoid"))
else:
    model.add(Dense(1, activation="softmax"))

model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(X, Y, epochs=25, batch_size=40, verbose=0)
scores = model.evaluate(X, Y, verbose=0)
print(f"loss {scores[0]:.4f} accuracy {scores[1]:.3f}")
