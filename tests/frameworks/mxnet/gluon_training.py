"""The user's network, and a loop over it that a test can walk step by step."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import hook_layer.mxnet as smd
from hook_layer.testing.written_trial import WrittenTrial

__all__ = ["EVERY_STEP", "LOSS", "Training", "conv_net", "every_step", "same"]

EVERY_STEP = smd.SaveConfig(save_interval=1)
LOSS = "loss0_output_0"


def conv_net() -> nn.HybridSequential:
    # Without the numbers of inputs MXNet draws the weights when it meets the first batch, and in
    # another order if the net is hybridized.
    net = nn.HybridSequential(prefix="net_")
    net.add(
        nn.Conv2D(channels=6, kernel_size=5, activation="relu", in_channels=1, prefix="conv0_"),
        nn.MaxPool2D(pool_size=2, strides=2, prefix="pool0_"),
        nn.Flatten(prefix="flatten0_"),
        nn.Dropout(0.3, prefix="dropout0_"),
        nn.Dense(10, in_units=96, prefix="dense0_"),
    )
    return net


class Training:
    """A model that is trained on random images."""

    def __init__(
        self,
        hook: smd.Hook | None,
        net: Any = None,
        *,
        hybridize: dict[str, Any] | None = None,
        contexts: int = 1,
        optimizer: str = "sgd",
        **trainer: Any,
    ) -> None:
        self.net = conv_net() if net is None else net
        self.contexts = [mx.cpu(i) for i in range(contexts)]
        self.criterion = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss0_")
        self.net.initialize(mx.init.Xavier(), ctx=self.contexts)
        if hook is not None:
            hook.register_block(self.net)
            hook.register_block(self.criterion)
        if hybridize is not None:
            self.net.hybridize(**hybridize)
        parameters = self.net.collect_params()
        self.trainer = gluon.Trainer(parameters, optimizer, {"learning_rate": 0.1}, **trainer)

    def backward(self) -> list[mx.nd.NDArray]:
        """Compute losses and gradients of a batch, and return the losses."""
        images = mx.nd.random.uniform(shape=(4, 1, 12, 12))
        labels = mx.nd.random.randint(0, 10, shape=(4,))
        split = gluon.utils.split_and_load
        parts = zip(split(images, self.contexts), split(labels, self.contexts), strict=True)
        with autograd.record():
            losses = [self.criterion(self.net(part), label) for part, label in parts]
        for loss in losses:
            loss.backward()
        return losses

    def step(self) -> np.ndarray:
        losses = self.backward()
        self.trainer.step(4)
        return np.concatenate([loss.asnumpy() for loss in losses])

    def parameters(self) -> dict[str, np.ndarray]:
        parameters = self.net.collect_params()
        return {name: p.data(self.contexts[0]).asnumpy() for name, p in parameters.items()}

    def gradients(self) -> dict[str, np.ndarray]:
        """Return the gradients as they are, summed over contexts."""
        named = self.net.collect_params().items()
        gradients = {n: [g.asnumpy() for g in p.list_grad()] for n, p in named}
        return {f"gradient/{name}": sum(of[1:], of[0]) for name, of in gradients.items()}


def every_step(trial: WrittenTrial, **options: Any) -> smd.Hook:
    options.setdefault("include_collections", ["weights", "biases", "gradients"])
    return smd.Hook(trial.uri, save_config=EVERY_STEP, **options)


def same(found: Any, expected: Any) -> bool:
    """Tell whether two arrays, or dicts of them, are the same to the bit."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    return bool(found.shape == expected.shape and found.tobytes() == expected.tobytes())
