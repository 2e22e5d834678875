"""The loss becomes negative, and accuracy stays near one half.

Cause: labels are -1 and +1 as in a textbook, but binary cross-entropy expects 0 and 1.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv

keras.utils.set_random_seed(9)
rng = np.random.default_rng(9)
points = rng.uniform(-1, 1, (480, 2))
circle = np.where((points**2).sum(1) < 0.6, 1, -1)
if FIXED:
    circle = np.where(circle == 1, 1, 0)

model = keras.Sequential()
model.add(keras.layers.Input((2,)))
model.add(keras.layers.Dense(24, activation="tanh"))
model.add(keras.layers.Dense(1))
model.compile(
    loss=keras.losses.BinaryCrossentropy(from_logits=True), optimizer=keras.optimizers.Adam(0.05)
)

for epoch in range(12):
    order = rng.permutation(480)
    for start in range(0, 480, 30):
        batch = order[start : start + 30]
        result = model.train_on_batch(points[batch], circle[batch])
inside = model.predict(points, verbose=0).ravel() > 0
print("loss", float(result), "accuracy", np.mean(inside == (circle == 1)))
