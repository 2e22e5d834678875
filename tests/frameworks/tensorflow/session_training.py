"""A small graph of TensorFlow 1, and a training of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Network", "feed", "read", "train", "v1"]

v1 = tf.compat.v1
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


@dataclass
class Network:
    """A graph that is to be trained; made in the default graph."""

    hook: Any = None
    optimizer: Any = None
    parts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        v1.set_random_seed(7)
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        y = v1.placeholder(tf.float32, [None, 1], name="y")
        w1 = v1.get_variable("w1", shape=[3, 4])
        bias = v1.get_variable("bias1", shape=[4])
        w2 = v1.get_variable("w2", shape=[4, 1], use_resource=False)
        hidden = tf.nn.relu(tf.matmul(x, w1) + bias, name="hidden")
        outputs = tf.matmul(hidden, w2, name="outputs")
        loss = tf.reduce_mean(tf.square(outputs - y), name="loss")
        v1.losses.add_loss(loss)
        optimizer = self.optimizer or v1.train.AdamOptimizer(0.05)
        if self.hook is not None:
            optimizer = self.hook.wrap_optimizer(optimizer)
        steps = v1.train.get_or_create_global_step()
        train_op = optimizer.minimize(loss, global_step=steps)
        twice = tf.multiply(outputs, 2.0, name="twice")  # no part of the training
        self.parts = {"train": train_op, "loss": loss, "twice": twice, "weights": [w1, bias, w2]}


def feed(step: int, size: int = 5) -> dict[str, Any]:
    generator = np.random.default_rng(step)
    inputs = generator.normal(size=(size, 3)).astype(np.float32)
    return {"x:0": inputs, "y:0": inputs.sum(axis=1, keepdims=True)}


def read(session: Any, variables: Any) -> list[Any]:
    """Return the values of variables, without a step."""

    def step(step_context: Any) -> Any:
        return step_context.session.run(variables)

    return [np.array(value) for value in session.run_step_fn(step)]


def train(
    hook: Any = None,
    steps: int = 4,
    *,
    hooks: Any = (),
    wraps: bool = True,
    run: Callable[[Any, Network, int], Any] | None = None,
) -> tuple[list[float], list[Any]]:
    """Train, and return the losses and the weights at the end."""
    losses: list[float] = []
    with tf.Graph().as_default():
        network = Network(hook if wraps else None)
        given = [*hooks, hook] if hook is not None else list(hooks)
        weights: list[Any] = []
        with v1.train.MonitoredSession(hooks=given) as session:
            for step in range(steps):
                if session.should_stop():
                    break
                fetches = [network.parts["loss"], network.parts["train"]]
                losses.append(float(session.run(fetches, feed(step))[0]))
                if run is not None:
                    run(session, network, step)
            if not session.should_stop():
                weights = read(session, network.parts["weights"])
    return losses, weights
