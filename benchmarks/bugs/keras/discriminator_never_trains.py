"""The GAN's discriminator never learns, although `train_on_batch` is called on it.

Cause: `trainable = False` is set before the discriminator itself is compiled, not after it.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(48)
rng = np.random.default_rng(48)

discriminator = keras.Sequential([layers.Input((2,)), layers.Dense(32), layers.LeakyReLU(0.2)])
discriminator.add(layers.Dense(1, activation="sigmoid"))
if not FIXED:
    discriminator.trainable = False
discriminator.compile(keras.optimizers.Adam(0.005), "binary_crossentropy", metrics=["accuracy"])

generator = keras.Sequential([layers.Input((4,)), layers.Dense(32, "relu"), layers.Dense(2)])
step = keras.optimizers.Adam(0.0005)
noise = layers.Input((4,))
frozen = keras.models.clone_model(discriminator)
frozen.trainable = False
gan = keras.Model(noise, frozen(generator(noise)))
gan.compile(step, "binary_crossentropy")

for i in range(60):
    angle = rng.uniform(0, 2 * np.pi, 32)
    real = np.stack([np.cos(angle), np.sin(angle)], 1) * 2 + 1
    z = rng.normal(size=(32, 4))
    fake = generator.predict_on_batch(z)
    batch, is_real = np.concatenate([real, fake]), np.repeat([1.0, 0.0], 32)
    loss = discriminator.train_on_batch(batch, is_real)
    frozen.set_weights(discriminator.get_weights())
    gan.train_on_batch(z, np.ones(32))
print("discriminator loss, accuracy:", discriminator.evaluate(batch, is_real, verbose=0))
