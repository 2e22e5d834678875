"""Most questions get no tag although most have three.

Cause: softmax over tags that do not exclude each other; each tag needs a sigmoid of its own.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(61)
rng = np.random.default_rng(61)

tags = (rng.uniform(size=(900, 6)) < 0.5).astype("float32")
vocabulary = rng.uniform(0, 1.2, (6, 40))
counts = rng.poisson(tags @ vocabulary).astype("float32")

bag = layers.Input((40,))
h = layers.Dense(48, activation="relu")(bag)
h = layers.Dropout(0.1)(h)
out = layers.Dense(6, activation="sigmoid" if FIXED else "softmax")(h)
model = keras.Model(bag, out)
model.compile("adam", loss="binary_crossentropy")
model.fit(counts, tags, batch_size=50, epochs=12, verbose=0)
given = model.predict(counts, verbose=0) > 0.5
print("loss", model.evaluate(counts, tags, verbose=0), "tags per question", given.sum(1).mean())
print("correct", (given == (tags > 0.5)).mean())
