"""The training loss falls, but the validation loss is worse than that of a constant.

Cause: weights start with a standard deviation of 1, so all hidden units are saturated.
"""

import sys

import keras
import numpy as np
from keras import initializers, layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(39)
rng = np.random.default_rng(39)

x = rng.normal(0, 1, (800, 10))
y = np.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]

model = keras.Sequential()
model.add(layers.Input((10,)))
for _ in range(5):
    if FIXED:
        start = initializers.GlorotNormal()
    else:
        start = initializers.RandomNormal(mean=0.0, stddev=1.0)
    model.add(layers.Dense(64, activation="tanh", kernel_initializer=start))
model.add(layers.Dense(1))
model.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse")
h = model.fit(x[:600], y[:600], validation_data=(x[600:], y[600:]), epochs=15, verbose=0)
print("variance", y.var(), "loss", h.history["loss"][-1], "val_loss", h.history["val_loss"][-1])
