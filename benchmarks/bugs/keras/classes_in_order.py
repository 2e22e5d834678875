"""Within an epoch the accuracy is near 1, but the evaluation after it is far worse.

Cause: `shuffle=False` on rows sorted by class: the network forgets all classes but the last.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(46)
rng = np.random.default_rng(46)

spots = rng.normal(0, 1, (4, 2))
X = np.concatenate([rng.normal(spot, 0.3, (200, 2)) for spot in spots])
y = np.repeat([0, 1, 2, 3], 200)

inputs = keras.layers.Input(shape=(2,))
hidden = keras.layers.Dense(32, activation="relu")(inputs)
outputs = keras.layers.Dense(4, activation="softmax")(hidden)
model = keras.Model(inputs, outputs)
model.compile(
    keras.optimizers.SGD(0.3), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
)
h = model.fit(X, y, batch_size=20, epochs=7, shuffle=FIXED, verbose=0).history
print("loss", h["loss"][-1], "accuracy", h["accuracy"][-1])
answers = model.predict(X, verbose=0).argmax(axis=1)
print("evaluated:", model.evaluate(X, y, verbose=0), "answers", np.bincount(answers, minlength=4))
