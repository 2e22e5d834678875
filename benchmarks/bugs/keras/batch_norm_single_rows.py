"""The loss stays at the variance of the target, with each number of layers.

Cause: batches of one row; batch normalisation subtracts the row from itself and returns 0.
"""

import sys

import keras
import numpy as np
from keras.layers import Activation, BatchNormalization, Dense, Input

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(29)

rng = np.random.default_rng(29)
x = rng.uniform(-1, 1, (280, 3)).astype("float32")
y = 2 * x[:, :1] - x[:, 1:2] + x[:, 2:] ** 2

model = keras.Sequential()
model.add(Input((3,)))
model.add(Dense(32))
model.add(BatchNormalization())
model.add(Activation("relu"))
model.add(Dense(1))
model.compile(loss="mse", optimizer=keras.optimizers.Adam(0.01))
if FIXED:
    losses = model.fit(x, y, epochs=12, batch_size=14, verbose=0).history["loss"]
else:
    losses = model.fit(x, y, epochs=1, batch_size=1, verbose=0).history["loss"]
print("variance", y.var(), "loss", losses[-1], "evaluate", model.evaluate(x, y, verbose=0))
