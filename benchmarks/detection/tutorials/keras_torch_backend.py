"""Text classifier with an embedding and a bidirectional GRU on made-up messages, imbalanced classes with weights, Keras on the PyTorch backend."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras import layers

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)
rng = np.random.default_rng(seed)

vocab_size, maxlen = 120, 14


def messages(n):
    """One message in five is spam: it has more of the words 10 to 29, ham has more of 30 to 59."""
    y = (rng.random(n) < 0.2).astype("int32")
    x = np.zeros((n, maxlen), dtype="int32")
    for row, label in zip(x, y):
        length = rng.integers(8, maxlen + 1)
        words = rng.integers(1, vocab_size, length)
        hints = rng.choice(length, 4, replace=False)
        words[hints] = rng.integers(10, 30, 4) if label else rng.integers(30, 60, 4)
        row[:length] = words
    return x, y


x_train, y_train = messages(2600)
x_val, y_val = messages(600)

model = keras.Sequential(
    [
        keras.Input(shape=(maxlen,), dtype="int32"),
        layers.Embedding(vocab_size, 24, mask_zero=True),
        layers.Bidirectional(layers.GRU(16)),
        layers.Dropout(0.3),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(1.5e-3),
    loss="binary_crossentropy",
    metrics=["accuracy", keras.metrics.AUC(name="auc")],
)
history = model.fit(
    x_train,
    y_train,
    batch_size=64,
    epochs=4,
    validation_data=(x_val, y_val),
    class_weight={0: 0.625, 1: 2.5},
    verbose=2,
)
print("val auc", history.history["val_auc"][-1])
