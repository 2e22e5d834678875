"""The first two epochs learn well, from the fifth on nothing changes any more.

Cause: the scheduler multiplies the current rate by 0.5 ** epoch, so the factors compound.
"""

import sys

import keras
import numpy as np
from keras.callbacks import LearningRateScheduler
from keras.layers import Conv1D, Dense, Flatten, Input, MaxPooling1D

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(53)
rng = np.random.default_rng(53)

time = np.linspace(0, 1, 40)
frequency = rng.integers(0, 5, 800)
phase = rng.uniform(0, 2 * np.pi, (800, 1))
signal = np.sin(2 * np.pi * (frequency[:, None] + 2) * time + phase)
signal = (signal + rng.normal(0, 0.4, signal.shape))[..., None]


def step_decay(epoch, rate):
    if FIXED:
        return 0.003 * 0.9**epoch
    return rate * 0.5**epoch


model = keras.Sequential([Input((40, 1)), Conv1D(8, 7, activation="relu"), MaxPooling1D()])
model.add(Flatten())
model.add(Dense(5, activation="softmax"))
model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy", metrics=["accuracy"])
h = model.fit(
    signal,
    frequency,
    batch_size=40,
    epochs=12,
    callbacks=[LearningRateScheduler(step_decay)],
    verbose=0,
)
print("loss", [round(v, 3) for v in h.history["loss"]], "accuracy", h.history["accuracy"][-1])
