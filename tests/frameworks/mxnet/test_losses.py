"""Losses: of blocks, without one, and with a name of their own."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import hook_layer.mxnet as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.mxnet.gluon_training import EVERY_STEP, every_step, same

HYBRIDIZE = pytest.mark.parametrize("hybridize", [None, {}], ids=["plain", "hybridized"])


def test_a_loss_without_a_block(trial: WrittenTrial) -> None:
    net = nn.Dense(3, in_units=3, prefix="dense0_")
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP)
    hook.register_block(net)
    expected = []
    for _ in range(2):
        with autograd.record():
            loss = net(mx.nd.ones((2, 3))).mean()
        autograd.backward([loss], [None], retain_graph=True)
        trainer.step(1)
        expected.append(loss.asnumpy())
    hook.close()
    assert [trial.names(step) for step in range(2)] == [{"Loss_output_0"}] * 2
    assert all(same(trial.values(step)["Loss_output_0"], expected[step]) for step in range(2))
    assert trial.collections().collections["losses"].tensor_names == ("Loss_output_0",)


@pytest.mark.parametrize("by_name", [False, True])
def test_what_has_gradients_of_its_own_is_no_loss(trial: WrittenTrial, by_name: bool) -> None:
    net = nn.Dense(3, in_units=3, prefix="dense0_")
    net.initialize()
    hook = every_step(trial)
    hook.register_block(net)
    with autograd.record():
        outputs = net(mx.nd.ones((2, 3)))
    gradients = mx.nd.ones((2, 3))
    if by_name:
        outputs.backward(out_grad=gradients)
    else:
        outputs.backward(gradients)
    hook.close()
    assert "gradient/dense0_weight" in trial.names(0)
    assert not [name for name in trial.names(0) if "Loss" in name]


def test_a_loss_that_the_script_names_itself(trial: WrittenTrial) -> None:
    net = nn.Dense(3, in_units=3, prefix="dense0_")
    net.initialize()
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP)
    hook.register_block(net)
    with autograd.record():
        loss = net(mx.nd.ones((2, 3))).mean()
        hook.save_tensor("mean_loss", loss, "losses")
    loss.backward()
    hook.close()
    assert trial.names(0) == {"mean_loss"}


def test_any_block_may_be_a_loss(trial: WrittenTrial) -> None:
    class Squares(nn.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
            return F.sum(x * x, 1)

    class SquaresLoss(Squares):
        pass

    hook = smd.Hook(trial.uri, save_config=EVERY_STEP)
    net = nn.Dense(3, in_units=3, prefix="dense0_")
    net.initialize()
    first, second = Squares(prefix="first_"), SquaresLoss(prefix="second_")
    hook.register_block(net)
    hook.register_loss(first)
    hook.register_block(second)
    with autograd.record():
        outputs = net(mx.nd.ones((2, 3)))
        loss = first(outputs) + second(outputs)
    loss.backward()
    hook.close()
    assert trial.names(0) == {"first_output_0", "second_output_0"}


def test_a_loss_within_the_model(trial: WrittenTrial) -> None:
    class WithLoss(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__(prefix="net_")
            self.dense = nn.Dense(1, in_units=3, prefix="dense_")
            self.criterion = gluon.loss.L2Loss(prefix="criterion_")

        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
            return self.criterion(self.dense(x), F.sum(x, 1, keepdims=True))

    names = []
    for hybridize in (False, True):
        own = WrittenTrial(f"{trial.uri}{hybridize}/")
        net = WithLoss()
        net.initialize()
        net.hybridize(hybridize)
        hook = smd.Hook(own.uri, save_config=EVERY_STEP)
        hook.register_block(net)
        with autograd.record():
            loss = net(mx.nd.ones((2, 3)))
        loss.backward()
        hook.close()
        names.append(own.names(0))
    assert names == [{"criterion_output_0"}, {"Loss_output_0"}]
