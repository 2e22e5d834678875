"""Trains a classifier of images of 28 x 28 pixels with Keras; nothing of Stepwatch in it."""

import gzip
import sys
from pathlib import Path

import keras
import numpy as np

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
NUM_IMAGES = 2048


def from_file(name: str, header_bytes: int) -> np.ndarray:
    with gzip.open(FASHION_MNIST / name) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


def load() -> tuple[np.ndarray, np.ndarray]:
    """Return images [N, 28, 28, 1] from 0 to 1, and labels [N]: of clothes, or else of digits."""
    if FASHION_MNIST.is_dir():
        pixels = from_file("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28) / 255
        labels = from_file("train-labels-idx1-ubyte.gz", 8)
    else:
        from sklearn.datasets import load_digits

        digits = load_digits()
        enlarged = np.kron(digits.images / 16, np.ones((3, 3)))
        pixels, labels = np.pad(enlarged, ((0, 0), (2, 2), (2, 2))), digits.target
    return pixels[:NUM_IMAGES, ..., np.newaxis].astype(np.float32), labels[:NUM_IMAGES]


learning_rate, num_epochs = float(sys.argv[1]), int(sys.argv[2])
keras.utils.set_random_seed(0)
images, labels = load()
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu", name="convolution"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu", name="hidden"),
        keras.layers.Dense(10, activation="softmax", name="head"),
    ]
)
model.compile(keras.optimizers.SGD(learning_rate), "sparse_categorical_crossentropy")
history = model.fit(images, labels, batch_size=64, epochs=num_epochs, verbose=0)
print(f"trained {len(history.epoch)} of {num_epochs} epochs")
