"""The network of both scenarios, and its training."""

from __future__ import annotations

from collections.abc import Iterator

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

__all__ = ["BATCH_SIZE", "Training", "batches"]

BATCH_SIZE = 64


class Training:
    """The network, its loss and its Trainer.

    Args:
        hybridize: Whether the network runs as one graph.
    """

    def __init__(self, *, hybridize: bool = False) -> None:
        mx.random.seed(0)
        np.random.seed(0)
        self.net = nn.HybridSequential(prefix="hybridsequential0_")
        self.net.add(
            nn.Conv2D(6, kernel_size=5, activation="relu", in_channels=1, prefix="conv0_"),
            nn.MaxPool2D(pool_size=2, strides=2, prefix="pool0_"),
            nn.Conv2D(16, kernel_size=3, activation="relu", in_channels=6, prefix="conv1_"),
            nn.MaxPool2D(pool_size=2, strides=2, prefix="pool1_"),
            nn.Flatten(prefix="flatten0_"),
            nn.Dense(120, activation="relu", in_units=400, prefix="dense0_"),
            nn.Dense(84, activation="relu", in_units=120, prefix="dense1_"),
            nn.Dense(10, in_units=84, prefix="dense2_"),
        )
        self.net.initialize(mx.init.Xavier())
        if hybridize:
            self.net.hybridize()
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="softmaxcrossentropyloss0_")
        parameters = {"learning_rate": 0.05, "momentum": 0.9}
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", parameters)

    def step(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> tuple[float, float]:
        """Train on a batch, and return its loss and accuracy."""
        with autograd.record():
            outputs = self.net(images)
            loss = self.loss(outputs, labels)
        loss.backward()
        self.trainer.step(len(labels))
        is_right = outputs.argmax(axis=1) == labels
        return float(loss.mean().asscalar()), float(is_right.mean().asscalar())


def batches(
    images: np.ndarray, labels: np.ndarray, first: int, end: int
) -> Iterator[tuple[int, mx.nd.NDArray, mx.nd.NDArray]]:
    """Return the batches of the steps from `first` to before `end`, each with its number."""
    num_batches = len(labels) // BATCH_SIZE
    for step in range(first, end):
        begin = step % num_batches * BATCH_SIZE
        part = slice(begin, begin + BATCH_SIZE)
        yield step, mx.nd.array(images[part]), mx.nd.array(labels[part])
