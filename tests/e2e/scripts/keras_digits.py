"""Trains a classifier of handwritten digits with Keras; nothing of Stepwatch in it."""

import sys

import keras
import numpy as np
from sklearn.datasets import load_digits

learning_rate, num_epochs = float(sys.argv[1]), int(sys.argv[2])
keras.utils.set_random_seed(0)
digits = load_digits()
images = (digits.images / 16).astype(np.float32)[..., np.newaxis]
model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu", name="convolution"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu", name="hidden"),
        keras.layers.Dense(10, activation="softmax", name="head"),
    ]
)
model.compile(keras.optimizers.SGD(learning_rate), "sparse_categorical_crossentropy")
history = model.fit(images, digits.target, batch_size=64, epochs=num_epochs, verbose=0)
print(f"trained {len(history.epoch)} of {num_epochs} epochs")
