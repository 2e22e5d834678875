"""Training accuracy stays near chance.

Cause: `Dropout(0.95)` was meant as the share to keep, but it is the share to drop.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(19)
rng = np.random.default_rng(19)
classes = 6
patterns = rng.normal(size=(classes, 30))
y = rng.integers(0, classes, 720)
x = patterns[y] + rng.normal(0, 1.3, (720, 30))

keep = 0.95
rate = 1 - keep if FIXED else keep
model = keras.Sequential(
    [
        layers.Dense(32, activation="relu"),
        layers.Dropout(rate),
        layers.Dense(32, activation="relu"),
        layers.Dropout(rate),
        layers.Dense(classes, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
h = model.fit(x, y, epochs=12, batch_size=40, validation_split=0.2, verbose=0).history
print({name: round(values[-1], 3) for name, values in h.items()})
