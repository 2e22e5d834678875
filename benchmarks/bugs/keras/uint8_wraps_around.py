"""The loss on photos that are centred by `x - 128` stays above the variance of the target.

Cause: the images are uint8, so 100 - 128 wraps around to 228.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(43)
rng = np.random.default_rng(43)

contrast = rng.normal(0, 1, 800)  # of the object in the centre against its surroundings
photos = rng.normal(0, 6, (800, 12, 12, 1)) + rng.normal(128, 15, (800, 1, 1, 1))
photos[:, 4:8, 4:8, 0] += 15 * contrast[:, None, None]
photos = photos.clip(0, 255).astype(np.uint8)
if FIXED:
    photos = photos.astype("float32")
x = (photos - 128) / 32

model = keras.Sequential()
model.add(layers.Input((12, 12, 1)))
model.add(layers.Flatten())
model.add(layers.Dense(32, activation="relu"))
model.add(layers.Dense(1))
model.compile("adam", loss="mse")
h = model.fit(x, contrast, batch_size=40, epochs=12, validation_split=0.25, verbose=0).history
print("mean, deviation of x:", x.mean(), x.std())
print("variance", contrast.var(), "loss", h["loss"][-1], "val_loss", h["val_loss"][-1])
