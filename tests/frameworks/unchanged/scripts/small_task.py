"""The task of all scripts: three classes of points that overlap."""

import sys
import time
from contextlib import contextmanager

import numpy as np

NUM_FEATURES, NUM_CLASSES, NUM_HIDDEN = 20, 3, 32
NUM_EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
BATCH, NUM_BATCHES, LEARNING_RATE = 32, 20, 0.1


def load():
    """Return features [rows, features] and labels [rows]."""
    random = np.random.default_rng(0)
    labels = random.integers(NUM_CLASSES, size=BATCH * NUM_BATCHES)
    centres = random.normal(size=(NUM_CLASSES, NUM_FEATURES))
    features = centres[labels] + random.normal(size=(len(labels), NUM_FEATURES)) * 2
    return features.astype(np.float32), labels.astype(np.int64)


@contextmanager
def timed():
    """Tell on the error output how long the training took."""
    started = time.perf_counter()
    yield
    print("trained in", time.perf_counter() - started, "s", file=sys.stderr)
