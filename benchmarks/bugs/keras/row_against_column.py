"""The custom loop runs and the loss falls a little, but all predictions are the mean of the targets.

Cause: targets of shape (n,) minus outputs of shape (n, 1) give a matrix of all pairs.
"""

import sys

import keras
import numpy as np
import torch
from keras import ops

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(35)
rng = np.random.default_rng(35)

x = rng.uniform(-3, 3, (512, 2)).astype("float32")
y = (np.abs(x[:, 0]) - 0.5 * x[:, 1]).astype("float32")

inputs = keras.Input((2,))
outputs = keras.layers.Dense(1)(keras.layers.Dense(32, activation="relu")(inputs))
model = keras.Model(inputs, outputs)
optimizer = keras.optimizers.Adam(learning_rate=0.01)

for step in range(200):
    rows = rng.integers(0, 512, 32)
    target = ops.convert_to_tensor(y[rows])
    if FIXED:
        target = ops.expand_dims(target, -1)
    model.zero_grad()
    loss = ops.mean(ops.square(target - model(x[rows])))
    loss.backward()
    gradients = [v.value.grad for v in model.trainable_weights]
    with torch.no_grad():
        optimizer.apply(gradients, model.trainable_weights)

predicted = model.predict(x, verbose=0).ravel()
print("loss", loss.item(), "real mse", np.mean((predicted - y) ** 2), "variance", y.var())
