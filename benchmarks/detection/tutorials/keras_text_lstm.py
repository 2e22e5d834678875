"""Text classification (which kind of help page is this piece of text from?) with TextVectorization-like ids, Embedding and a bidirectional LSTM, in the manner of the Keras IMDB example."""

import argparse
import inspect
import logging
import os
import pydoc_data.topics
import re
import sys
import tarfile
from collections import Counter

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)

max_features, maxlen = 600, 10

# prose of the help pages (0) against comments and code of the library (1)
prose = re.findall(
    r"[a-z]+", " ".join(v for _, v in sorted(pydoc_data.topics.topics.items())).lower()
)
code = re.findall(
    r"[a-z]+", "".join(inspect.getsource(m) for m in (argparse, logging, tarfile)).lower()
)
prose = prose[: len(code)]


def windows(words):
    return [words[i : i + maxlen] for i in range(0, len(words) - maxlen, maxlen)]


texts = windows(prose) + windows(code)
labels = np.array([0] * len(windows(prose)) + [1] * len(windows(code)))
vocabulary = {
    w: i + 2 for i, (w, _) in enumerate(Counter(prose + code).most_common(max_features - 2))
}
x = np.array([[vocabulary.get(w, 1) for w in t] for t in texts])
order = np.random.permutation(len(x))
train, val = order[:-800], order[-800:]
print(len(train), "train sequences,", len(val), "val sequences")

inputs = keras.Input(shape=(maxlen,), dtype="int32")
h = layers.Embedding(max_features, 16)(inputs)
h = layers.SpatialDropout1D(0.4)(h)
h = layers.Bidirectional(layers.LSTM(16))(h)
h = layers.Dropout(0.3)(h)
outputs = layers.Dense(1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs)
model.compile(
    optimizer=keras.optimizers.Adam(1e-3), loss="binary_crossentropy", metrics=["accuracy"]
)
history = model.fit(
    x[train],
    labels[train],
    batch_size=64,
    epochs=4,
    validation_data=(x[val], labels[val]),
    verbose=2,
)
print("val accuracy:", history.history["val_accuracy"][-1])
