"""The same network that works on the sorted data learns nothing on the shuffled data.

Cause: inputs and labels are shuffled in two calls, each in an order of its own.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(24)

features, labels = [], []
for k in range(4):
    features.append(np.random.normal(loc=k, scale=0.4, size=(200, 5)))
    labels.append(np.full(200, k))
features, labels = np.concatenate(features), np.concatenate(labels)

if FIXED:
    order = np.random.permutation(len(features))
    features, labels = features[order], labels[order]
else:
    np.random.shuffle(features)
    np.random.shuffle(labels)

model = Sequential()
model.add(Dense(32, activation="relu"))
model.add(Dense(4, activation="softmax"))
model.compile(
    keras.optimizers.RMSprop(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
)
model.fit(features, labels, epochs=15, batch_size=40, verbose=0)
print("loss, accuracy:", model.evaluate(features, labels, verbose=0))
