"""Accuracy of the network with ten classes stays near 30 % for many epochs.

Cause: mean squared error on softmax outputs with SGD; its gradients are very small.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(62)
rng = np.random.default_rng(62)

means = rng.normal(0, 1, (10, 16))
classes = rng.integers(0, 10, 1500)
x = means[classes] + rng.normal(0, 0.6, (1500, 16))
y = keras.utils.to_categorical(classes)

model = keras.models.Sequential()
model.add(keras.layers.Dense(32, activation="sigmoid"))
model.add(keras.layers.Dense(10, activation="softmax"))
loss = "categorical_crossentropy" if FIXED else "mean_squared_error"
model.compile(loss=loss, optimizer=keras.optimizers.SGD(0.3), metrics=["accuracy"])
h = model.fit(x, y, epochs=8, batch_size=50, verbose=0)
print("loss", h.history["loss"][-1], "accuracy", h.history["accuracy"][-1])
