"""Training accuracy is 100 %, validation accuracy is 0 in each epoch.

Cause: the rows are sorted by class, and `validation_split` takes the last rows: unseen classes.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(25)
rng = np.random.default_rng(25)

centres = rng.normal(0, 2, (5, 8))
Y = np.repeat(np.arange(5), 160)
X = centres[Y] + rng.normal(0, 0.8, (800, 8))
if FIXED:
    order = rng.permutation(800)
    X, Y = X[order], Y[order]
Y = keras.utils.to_categorical(Y, 5)

inputs = layers.Input(shape=(8,))
x = layers.Dense(32)(inputs)
x = layers.LeakyReLU()(x)
outputs = layers.Dense(5, activation="softmax")(x)
model = keras.Model(inputs=inputs, outputs=outputs)
model.compile("adam", loss="categorical_crossentropy", metrics=["accuracy"])
history = model.fit(X, Y, epochs=12, batch_size=40, validation_split=0.2, verbose=0)
for name, values in history.history.items():
    print(name, round(values[-1], 3), end=" ")
print()
