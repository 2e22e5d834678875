"""Training is very slow: the loss starts at 2.3 and is still above 2 after four epochs.

Cause: the model ends in softmax and the loss applies softmax again (`from_logits=True`).
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(42)

rng = np.random.default_rng(42)
prototypes = rng.uniform(0, 1, (10, 14, 14))
y_train = rng.integers(0, 10, 1600)
x_train = prototypes[y_train] + rng.normal(0, 0.8, (1600, 14, 14))


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.flatten = keras.layers.Flatten()
        self.d1 = keras.layers.Dense(64, activation="relu")
        self.d2 = keras.layers.Dense(10, activation=None if FIXED else "softmax")

    def call(self, x):
        return self.d2(self.d1(self.flatten(x)))


model = Classifier()
model.compile(
    optimizer=keras.optimizers.SGD(0.05),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(x_train, y_train, epochs=4, batch_size=32, verbose=0)
print("loss, accuracy:", model.evaluate(x_train, y_train, verbose=0))
