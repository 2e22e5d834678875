"""The recurrent network predicts nearly the same value at each time, the mean of the targets.

Cause: `return_sequences=True`: each of the 12 steps has to predict the one target of the sequence.
Keras repeats the target for each step without a warning.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(34)
rng = np.random.default_rng(34)

X = rng.uniform(-1, 1, (640, 12, 1)).astype("float32")
y = X[:, -3:, 0].sum(axis=1)  # the last three numbers of each sequence

model = keras.Sequential()
model.add(layers.Input((12, 1)))
model.add(layers.GRU(24, return_sequences=not FIXED))
model.add(layers.Dense(1))
model.compile(loss="mse", optimizer=keras.optimizers.Adam(0.01))
h = model.fit(X, y, epochs=8, batch_size=32, verbose=0)
print("variance", y.var(), "loss", h.history["loss"][-1])
