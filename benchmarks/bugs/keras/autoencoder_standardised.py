"""The autoencoder's loss is stuck at half of the variance.

Cause: the inputs are standardised, so half are negative; a sigmoid output cannot rebuild them.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(49)
rng = np.random.default_rng(49)

code = rng.uniform(0, 1, (960, 3))
basis = rng.uniform(0, 1, (3, 36))
x = code @ basis + rng.normal(0, 0.02, (960, 36))
if FIXED:
    x = (x - x.min()) / (x.max() - x.min())
else:
    x = (x - x.mean()) / x.std()

encoder = keras.Sequential([layers.Dense(24, activation="relu"), layers.Dense(3)])
decoder = keras.Sequential([layers.Dense(24, activation="relu"), layers.Dense(36, "sigmoid")])
image = layers.Input((36,))
autoencoder = keras.Model(image, decoder(encoder(image)))
autoencoder.compile(keras.optimizers.Adam(0.01), loss="mean_squared_error")
h = autoencoder.fit(x, x, batch_size=48, epochs=12, verbose=0)
error = ((autoencoder.predict(x, verbose=0) - x) ** 2).mean()
print("loss", h.history["loss"][-1], "unexplained share", error / x.var())
