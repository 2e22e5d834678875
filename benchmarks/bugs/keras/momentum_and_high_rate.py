"""The loss oscillates far above its start, and accuracy stays below one half.

Cause: momentum 0.99 with a learning rate of 0.5 makes steps that are 100 times too large.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(17)
rng = np.random.default_rng(17)

centres = rng.normal(0, 1.2, (6, 10))
target = rng.integers(0, 6, 900)
samples = (centres[target] + rng.normal(0, 0.7, (900, 10))).astype("float32")


def create_model():
    model = keras.Sequential()
    model.add(layers.Dense(40, activation="relu"))
    model.add(layers.Dense(40, activation="relu"))
    model.add(layers.Dense(6, activation="softmax"))
    return model


if FIXED:
    optimizer = keras.optimizers.SGD(learning_rate=0.02, momentum=0.9)
else:
    optimizer = keras.optimizers.SGD(learning_rate=0.5, momentum=0.99)
clf = create_model()
clf.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
clf.fit(samples, target, epochs=8, batch_size=45, verbose=0)
print("loss, accuracy:", clf.evaluate(samples, target, verbose=0))
