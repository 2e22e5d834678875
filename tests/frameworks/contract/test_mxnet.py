"""The contract of hooks, kept by MXNet's: plain, and with a model that is hybridized."""

from __future__ import annotations

from typing import Any, ClassVar

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

import stepwatch.mxnet
from hook_layer.core.hook import BaseHook
from hook_layer.mxnet import Hook, modes
from hook_layer.testing.hook_contract import HookContract, OnStep, Trained, digest_of, nothing
from tests.frameworks.default_hooks import DefaultHookContract


class MeanLoss(gluon.loss.SoftmaxCrossEntropyLoss):
    def hybrid_forward(self, F: Any, *args: Any, **keywords: Any) -> Any:  # noqa: N803 - MXNet's
        return F.mean(super().hybrid_forward(F, *args, **keywords))


class TestMxnet(HookContract):
    adapter = "MXNet"
    hook_type = Hook
    loss_name = "loss0_output_0"
    names: ClassVar[dict[str, str]] = {
        "losses": "loss0_output_0",
        "weights": "hidden_weight",
        "biases": "hidden_bias",
        "gradients": "gradient/head_weight",
    }
    more_names = ("hidden_input_0", "hidden_relu_output_0", "net_output_0", "loss0_input_1")
    hybridized: ClassVar[bool] = False

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        mx.random.seed(0)
        net, criterion = nn.HybridSequential(prefix="net_"), MeanLoss(prefix="loss0_")
        net.add(
            nn.Dense(8, activation="relu", prefix="hidden_"),
            nn.Dropout(0.2, prefix="dropout_"),
            nn.Dense(3, prefix="head_"),
        )
        net.initialize(mx.init.Xavier())
        if self.hybridized:
            net.hybridize(static_alloc=True)
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
        if hook is not None:
            assert isinstance(hook, Hook)
            hook.register_block(net)
            hook.register_block(criterion)
            hook.set_mode(modes.TRAIN)
        losses = []
        for step in range(steps):
            inputs, labels = mx.nd.random.normal(shape=(5, 6)), mx.nd.random.randint(0, 3, (5,))
            with autograd.record():
                loss = criterion(net(inputs), labels)
            loss.backward()
            trainer.step(1)
            losses.append(loss.asscalar())
            on_step(step)
        if hook is not None:
            hook.set_mode(modes.EVAL)
        for _ in range(evaluations):
            inputs, labels = mx.nd.random.normal(shape=(5, 6)), mx.nd.random.randint(0, 3, (5,))
            criterion(net(inputs), labels)
        weights = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
        return Trained(digest_of(weights), tuple(losses))


class TestHybridizedMxnet(TestMxnet):
    adapter = "MXNet (hybridized)"
    hybridized = True


class TestDefaultHookOfMxnet(DefaultHookContract):
    """What `stepwatch.mxnet.Hook` saves."""

    hook_type = Hook
    default_type = stepwatch.mxnet.Hook
    hybridized: ClassVar[bool] = False
    train = TestMxnet.train
