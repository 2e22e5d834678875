"""The loss stays above 0.6 and accuracy near 70 % on an easy table.

Cause: `binary_crossentropy` expects probabilities, but the last layer is linear without sigmoid.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense, Input

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(0)

rng = np.random.default_rng(0)
n = 512
age = rng.uniform(18, 80, n)
fare = rng.exponential(30, n)
sex = rng.integers(0, 2, n)
survived = (2.2 * sex - 0.03 * age + 0.02 * fare + rng.normal(0, 0.5, n) > 0.6).astype("float32")
table = np.stack([(age - 49) / 18, (fare - 30) / 30, sex - 0.5], axis=1)

model = keras.Sequential([Input((3,)), Dense(16, activation="relu"), Dense(1)])
if FIXED:
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    accuracy = keras.metrics.BinaryAccuracy(threshold=0.0)
else:
    loss = "binary_crossentropy"
    accuracy = keras.metrics.BinaryAccuracy()
model.compile("adam", loss=loss, metrics=[accuracy])
model.fit(table, survived, epochs=20, batch_size=64, verbose=0)
print("loss, accuracy:", model.evaluate(table, survived, verbose=0))
