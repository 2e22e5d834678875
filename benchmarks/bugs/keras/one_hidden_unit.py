"""Accuracy on 8 groups of customers stays near one half.

Cause: a layer with a single relu unit in the middle of the network lets almost nothing through.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(32)
rng = np.random.default_rng(32)

groups = rng.integers(0, 8, 800)
spending = rng.normal(0, 1, (8, 12))[groups] + rng.normal(0, 0.3, (800, 12))

model = keras.Sequential(
    [
        layers.Input((12,)),
        layers.Dense(64, activation="relu"),
        layers.Dense(32 if FIXED else 1, activation="relu"),
        layers.Dense(64, activation="relu"),
        layers.Dense(8, activation="softmax"),
    ]
)
model.compile(
    optimizer=keras.optimizers.Nadam(0.005),
    loss=keras.losses.SparseCategoricalCrossentropy(),
    metrics=["accuracy"],
)
history = model.fit(spending, groups, batch_size=50, epochs=12, verbose=0)
print("loss", history.history["loss"][-1], "accuracy", history.history["accuracy"][-1])
