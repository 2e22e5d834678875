"""The loss falls for a few batches and then stays exactly where it is.

Cause: `decay_steps=1` multiplies the learning rate by 0.8 after each batch instead of each epoch.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(16)

rng = np.random.default_rng(16)
x = rng.uniform(-2, 2, (960, 2))
y = np.sin(2 * x[:, :1]) * np.cos(x[:, 1:])
batch_size = 48
steps_per_epoch = len(x) // batch_size

schedule = keras.optimizers.schedules.ExponentialDecay(
    initial_learning_rate=0.01, decay_steps=steps_per_epoch if FIXED else 1, decay_rate=0.8
)
inp = keras.layers.Input(shape=(2,))
hidden = keras.layers.Dense(48, activation="relu")(inp)
hidden = keras.layers.Dense(48, activation="relu")(hidden)
out = keras.layers.Dense(1)(hidden)
model = keras.Model(inp, out)
model.compile(loss="mse", optimizer=keras.optimizers.Adam(schedule))
h = model.fit(x, y, batch_size=batch_size, epochs=10, verbose=0)
print("variance of y", y.var(), "loss", [round(v, 4) for v in h.history["loss"]])
