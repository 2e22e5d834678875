"""After three epochs the loss stops falling; the learning rate ends at 3e-14.

Cause: `ReduceLROnPlateau` on the loss with `mode="max"` takes each better epoch for a plateau.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(52)
rng = np.random.default_rng(52)

x = rng.uniform(-1, 1, (600, 4))
y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] - x[:, 3]

inputs = keras.Input((4,))
hidden = keras.layers.Dense(48, activation="relu")(inputs)
hidden = keras.layers.Dense(48, activation="relu")(hidden)
model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
model.compile(keras.optimizers.Adam(0.003), loss="mse")
plateau = keras.callbacks.ReduceLROnPlateau(
    monitor="loss", factor=0.1, patience=1, mode="min" if FIXED else "max", min_lr=0
)
h = model.fit(x, y, batch_size=30, epochs=12, callbacks=[plateau], verbose=0)
print("variance", y.var(), "loss", [round(v, 3) for v in h.history["loss"]])
print("rate", float(model.optimizer.learning_rate.numpy()))
