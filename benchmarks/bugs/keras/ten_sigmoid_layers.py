"""One hidden layer learns the circles, ten hidden layers answer 0.5 for all points.

Cause: sigmoid in each of ten hidden layers; the gradients vanish on the way to the input.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(38)
rng = np.random.default_rng(38)

angle, inner = rng.uniform(0, 2 * np.pi, 600), rng.integers(0, 2, 600)
radius = np.where(inner == 1, 0.4, 1.0) + rng.normal(0, 0.08, 600)
X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

model = Sequential()
for _ in range(10):
    model.add(Dense(20, activation="relu" if FIXED else "sigmoid"))
model.add(Dense(1, activation="sigmoid"))
model.compile("adam", loss="binary_crossentropy", metrics=["accuracy"])
model.fit(X, inner, epochs=12, batch_size=50, verbose=0)
print("loss, accuracy:", model.evaluate(X, inner, verbose=0))
