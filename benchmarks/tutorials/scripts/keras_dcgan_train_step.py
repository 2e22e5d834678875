"""Keras GAN with two optimisers in a custom train_step on digits, noise on the labels, in the manner of the Keras example 'DCGAN to generate face images'."""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
keras.utils.set_random_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

images = (load_digits().images[..., None] / 8 - 1).astype("float32")
held_out = images[1500:].reshape(-1, 64)
dataset = (
    tf.data.Dataset.from_tensor_slices(images[:1500]).shuffle(1500).batch(50, drop_remainder=True)
)
latent_dim = 24

discriminator = keras.Sequential(
    [
        keras.Input(shape=(8, 8, 1)),
        layers.Conv2D(24, kernel_size=4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(48, kernel_size=4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.Dense(1),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input(shape=(latent_dim,)),
        layers.Dense(2 * 2 * 48),
        layers.Reshape((2, 2, 48)),
        layers.Conv2DTranspose(48, kernel_size=4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2DTranspose(32, kernel_size=4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(1, kernel_size=5, padding="same", activation="tanh"),
    ],
    name="generator",
)


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator, self.generator, self.latent_dim = discriminator, generator, latent_dim
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real_images):
        batch_size = ops.shape(real_images)[0]
        noise = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        combined_images = ops.concatenate([self.generator(noise), real_images], axis=0)
        labels = ops.concatenate([ops.zeros((batch_size, 1)), ops.ones((batch_size, 1))], axis=0)
        labels = 0.9 * labels + 0.05 + 0.05 * (tf.random.uniform(tf.shape(labels)) - 0.5)
        with tf.GradientTape() as tape:
            predictions = self.discriminator(combined_images, training=True)
            d_loss = self.loss_fn(labels, predictions)
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))

        noise = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(noise, training=True), training=True)
            g_loss = self.loss_fn(ops.ones((batch_size, 1)), predictions)
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


class GANMonitor(keras.callbacks.Callback):
    """Distance from samples to the nearest held-out digit, and from digits to the nearest sample."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch % 5 == 4:
            noise = keras.random.normal((len(held_out), latent_dim), seed=epoch)
            fake = np.array(self.model.generator(noise)).reshape(-1, 64)
            dist = np.sqrt(((fake[:, None] - held_out[None]) ** 2).sum(-1))
            print(
                f"epoch {epoch + 1} {logs} precision {dist.min(1).mean():.3f} coverage {dist.min(0).mean():.3f}"
            )


gan = GAN(discriminator=discriminator, generator=generator, latent_dim=latent_dim)
gan.compile(
    d_optimizer=keras.optimizers.Adam(learning_rate=1e-3, beta_1=0.5),
    g_optimizer=keras.optimizers.Adam(learning_rate=4e-4, beta_1=0.5),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
gan.fit(dataset, epochs=30, callbacks=[GANMonitor()], verbose=0)
