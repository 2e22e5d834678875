"""The loss falls only in the fourth decimal from epoch to epoch.

Cause: a learning rate of 1e-6, copied from the decay of an old tutorial, is far too low for SGD.
"""

import sys

import keras
import numpy as np
from keras.layers import Activation, Dense, Input
from keras.models import Sequential
from keras.optimizers import SGD

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(15)

rng = np.random.default_rng(15)
kinds = rng.integers(0, 3, 450)
flowers = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.5, 2.0]])[kinds]
flowers = flowers - flowers.mean(axis=0) + rng.normal(0, 0.25, (450, 4))
one_hot = keras.utils.to_categorical(kinds, 3)

model = Sequential()
model.add(Input((4,)))
model.add(Dense(16))
model.add(Activation("tanh"))
model.add(Dense(3))
model.add(Activation("softmax"))
sgd = SGD(learning_rate=0.1 if FIXED else 1e-6, momentum=0.9, nesterov=True)
model.compile(loss="categorical_crossentropy", optimizer=sgd, metrics=["accuracy"])
log = model.fit(flowers, one_hot, epochs=9, batch_size=18, verbose=0).history
print("loss", log["loss"][0], "->", log["loss"][-1], "accuracy", log["accuracy"][-1])
