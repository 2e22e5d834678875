"""All hidden units stay the same, and the network predicts the mean for each input.

Cause: each kernel starts at zero, so no gradient reaches the first layers.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense, Input
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(18)

init = "glorot_uniform" if FIXED else "zeros"
rng = np.random.default_rng(18)
bits = rng.integers(0, 2, (512, 3)).astype("float32")
parity = bits.sum(axis=1) % 2

model = Sequential()
model.add(Input((3,)))
model.add(Dense(24, kernel_initializer=init, activation="relu"))
model.add(Dense(12, kernel_initializer=init, activation="relu"))
model.add(Dense(1, kernel_initializer=init, activation="sigmoid"))
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy")
history = model.fit(bits, parity, batch_size=32, epochs=12, verbose=0)
hit = (model.predict(bits, verbose=0).ravel() > 0.5) == (parity > 0.5)
print("loss", history.history["loss"][-1], "accuracy", hit.mean())
