"""I call fit in a loop over chunks of data; the loss starts at the same height at each chunk.

Cause: the model is created inside the loop, so each chunk begins with new weights.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(47)
rng = np.random.default_rng(47)


def get_model():
    model = Sequential()
    model.add(Dense(32, activation="relu"))
    model.add(Dense(32, activation="relu"))
    model.add(Dense(1))
    model.compile(loss="mse", optimizer=keras.optimizers.Adam(0.003))
    return model


def chunk():
    x = rng.uniform(-2, 2, (160, 2))
    return x, x[:, 0] ** 2 - 2 * np.sin(x[:, 1])


model = get_model()
for i in range(12):
    x, y = chunk()
    if not FIXED:
        model = get_model()
    log = model.fit(x, y, batch_size=16, epochs=1, verbose=0)
    print(i, log.history["loss"][0])
x, y = chunk()
print("variance", y.var(), "loss on new data", model.evaluate(x, y, verbose=0))
