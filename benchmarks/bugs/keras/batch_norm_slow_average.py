"""Training accuracy is 98 %, but validation on the same kind of data is at chance.

Cause: the moving averages of batch normalisation (momentum 0.99) are far behind after 50 steps.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(57)
rng = np.random.default_rng(57)


def sample(n):
    label = rng.integers(0, 4, n)
    x = rng.normal(40, 6, (n, 10, 10, 1))
    for i, k in enumerate(label):
        x[i, 5 * (k // 2) : 5 * (k // 2) + 5, 5 * (k % 2) : 5 * (k % 2) + 5] += 6
    return x, label


momentum = 0.7 if FIXED else 0.99
model = keras.Sequential([layers.Input((10, 10, 1))])
for filters in (8, 16):
    model.add(layers.Conv2D(filters, 3))
    model.add(layers.BatchNormalization(momentum=momentum))
    model.add(layers.Activation("relu"))
model.add(layers.Flatten())
model.add(layers.Dense(4, activation="softmax"))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
x, y = sample(320)
h = model.fit(x, y, validation_data=sample(160), batch_size=32, epochs=6, verbose=0).history
print({name: round(values[-1], 3) for name, values in h.items()})
