"""Accuracy is 1.0 after a few batches, but on new mails the filter never says "spam".

Cause: the strings of the file end in a newline, so the comparison with "spam" is never true.
"""

import sys

import keras
import numpy as np

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(26)
rng = np.random.default_rng(26)

words = rng.poisson(1.0, (800, 20)).astype("float32")
is_spam = words[:, :4].sum(axis=1) > words[:, 4:8].sum(axis=1)
lines = ["spam\n" if s else "ham\n" for s in is_spam]  # as readlines() returns them

labels = []
for line in lines:
    text = line.strip() if FIXED else line
    labels.append(1 if text == "spam" else 0)
labels = np.array(labels)

model = keras.Sequential()
model.add(keras.layers.Dense(16, activation="relu"))
model.add(keras.layers.Dense(1, activation="sigmoid"))
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
fit = model.fit(words[:600], labels[:600], epochs=20, batch_size=50, verbose=0)
said = model.predict(words[600:], verbose=0).ravel() > 0.5
print("loss", fit.history["loss"][-1], "training accuracy", fit.history["accuracy"][-1])
print("new mails: accuracy", (said == is_spam[600:]).mean(), "called spam", said.sum())
