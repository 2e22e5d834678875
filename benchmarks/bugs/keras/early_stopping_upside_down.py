"""Training ends after a few epochs, and the restored model is that of the first epoch.

Cause: `EarlyStopping` on the accuracy with `mode="min"` takes the worst epoch for the best one.
"""

import sys

import keras
import numpy as np
from keras import layers
from keras.callbacks import EarlyStopping

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(51)
rng = np.random.default_rng(51)

mean = rng.normal(0, 1, (7, 9))
y = rng.integers(0, 7, 900)
x = mean[y] + rng.normal(0, 0.6, (900, 9))

model = keras.Sequential()
model.add(layers.Dense(32, activation="elu"))
model.add(layers.Dense(7, activation="softmax"))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
stopping = EarlyStopping(
    monitor="val_accuracy",
    mode="max" if FIXED else "min",
    patience=4,
    restore_best_weights=True,
)
h = model.fit(x, y, validation_split=0.2, epochs=20, batch_size=50, callbacks=[stopping], verbose=0)
print("epochs", len(h.epoch), "loss, accuracy:", model.evaluate(x, y, verbose=0))
