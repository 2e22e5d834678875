"""A weighted cross-entropy of my own works for some epochs, then the loss is nan.

Cause: the loss takes the logarithm of a probability that reaches 0; the built-in loss clips it.
"""

import sys

import keras
import numpy as np
from keras import layers, ops

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(28)
rng = np.random.default_rng(28)


def weighted_crossentropy(y_true, y_pred):
    y_true = ops.cast(y_true, y_pred.dtype)
    if FIXED:
        y_pred = ops.clip(y_pred, 1e-7, 1 - 1e-7)
    positive = 3.0 * y_true * ops.log(y_pred)
    negative = (1.0 - y_true) * ops.log(1.0 - y_pred)
    return -ops.mean(positive + negative)


x = rng.normal(0, 8, (800, 4))
y = (x[:, 0] - x[:, 1] > 12).astype("float32").reshape(-1, 1)

inputs = keras.Input((4,))
h = layers.Dense(64, activation="relu")(inputs)
h = layers.Dense(64, activation="relu")(h)
outputs = layers.Dense(1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=weighted_crossentropy)
losses = model.fit(x, y, batch_size=40, epochs=10, verbose=0).history["loss"]
hit = (model.predict(x, verbose=0) > 0.5) == (y > 0.5)
print("loss", [round(v, 4) for v in losses], "accuracy", hit.mean())
