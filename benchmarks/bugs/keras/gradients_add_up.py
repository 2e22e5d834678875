"""A training loop from the Keras guide: the loss falls at first, then it swings up and down.

Cause: `model.zero_grad()` is missing, so each step uses the sum of all gradients so far.
"""

import sys

import keras
import numpy as np
import torch

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(55)
rng = np.random.default_rng(55)

centres = rng.normal(0, 1, (5, 8))
y_train = rng.integers(0, 5, 1000)
x_train = (centres[y_train] + rng.normal(0, 1.1, (1000, 8))).astype("float32")

model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(5)])
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(learning_rate=0.2)
model(x_train[:1])

for epoch in range(5):
    for start in range(0, 1000, 40):
        x = torch.as_tensor(x_train[start : start + 40])
        labels = torch.as_tensor(y_train[start : start + 40])
        if FIXED:
            model.zero_grad()
        loss = loss_fn(labels, model(x))
        loss.backward()
        weights = model.trainable_weights
        with torch.no_grad():
            optimizer.apply([w.value.grad for w in weights], weights)
    print("epoch", epoch, "loss", loss.item())
answer = model.predict(x_train, verbose=0).argmax(axis=1)
print("accuracy", (answer == y_train).mean())
