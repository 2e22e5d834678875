"""With class weights against the imbalance, the network finds none of the ill people.

Cause: the weights are swapped: the frequent class gets the large one.
"""

import sys

import keras
import numpy as np
from keras.layers import Dense

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(50)
rng = np.random.default_rng(50)

ill = rng.choice([0, 1], 1200, p=[0.85, 0.15])
blood = rng.normal(0, 1, (1200, 6)) + ill[:, None] * np.array([1.2, -0.8, 0.6, 0, 0, 0])
counts = np.bincount(ill)
share = counts / counts.sum()
if FIXED:
    class_weight = {0: 1 / (2 * share[0]), 1: 1 / (2 * share[1])}
else:
    class_weight = {0: 1 / (2 * share[1]), 1: 1 / (2 * share[0])}

model = keras.Sequential([keras.Input((6,)), Dense(24, activation="relu"), Dense(2, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(blood, ill, epochs=8, batch_size=60, class_weight=class_weight, verbose=0)
found = model.predict(blood, verbose=0).argmax(1)
print("loss, accuracy:", model.evaluate(blood, ill, verbose=0), "recall", found[ill == 1].mean())
