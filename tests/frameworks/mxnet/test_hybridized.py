"""Hybridized blocks, which run as a graph."""

from __future__ import annotations

import gc
import warnings

import mxnet as mx
import pytest
from mxnet import autograd
from mxnet.gluon import nn

import hook_layer.mxnet as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.mxnet.gluon_training import EVERY_STEP, LOSS, Training, every_step, same


def test_hybridizing_later_and_again(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_regex="conv0_relu")
    training = Training(hook)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MXNet's, that hooks have no effect
        for hybridize in (None, True, False, True, True):
            if hybridize is not None:
                training.net.hybridize(hybridize)
            training.step()
    hook.close()
    expected = {"conv0_relu_input_0", "conv0_relu_output_0", LOSS}
    assert [trial.names(step) for step in range(5)] == [expected] * 5
    assert hook.report().errors == {}


def test_graphs_within_a_model_that_is_none(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_regex="(conv0|pool0)_")
    net = nn.Sequential(prefix="net_")
    net.add(
        nn.Conv2D(2, 3, activation="relu", prefix="conv0_"),
        nn.MaxPool2D(prefix="pool0_"),
        nn.Dense(10, prefix="dense0_"),
    )
    training = Training(hook, net, hybridize={})
    for _ in range(2):
        training.step()
    operators = [block._cached_op for block in net]
    hook.close()
    layers = {
        f"{b}_{kind}_0" for b in ("conv0", "conv0_relu", "pool0") for kind in ("input", "output")
    }
    assert layers <= trial.names(1)
    values = trial.values(1)
    assert same(values["conv0_relu_output_0"], values["conv0_output_0"])
    assert (values["conv0_relu_input_0"] < 0).any()
    training.step()
    assert operators == [block._cached_op for block in net]


def test_a_forward_pass_that_fails_leaves_the_graph_as_it_was(trial: WrittenTrial) -> None:
    hook = every_step(trial, save_all=True)
    training = Training(hook, hybridize={})
    training.step()
    operator = training.net._cached_op
    for _ in range(2):
        with pytest.raises(Exception, match=r"[Ss]hape|Check failed"):
            training.net(mx.nd.ones((2, 7, 12, 12))).asnumpy()
    training.step()
    assert training.net._cached_op is operator
    hook.close()
    assert hook.report().errors == {}


def test_a_loss_outlives_the_hook_that_looked_into_its_graph(trial: WrittenTrial) -> None:
    hook = every_step(trial, save_all=True)
    training = Training(hook, hybridize={})
    training.step()
    with autograd.record():
        loss = training.net(mx.nd.ones((2, 1, 12, 12))).sum()
    hook.close()
    smd.del_hook()
    del hook
    gc.collect()
    loss.backward()
    assert training.gradients()["gradient/dense0_bias"].tolist() == [2.0] * 10


def test_a_backend_that_hides_the_insides_is_reported(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = every_step(trial, save_all=True)
    training = Training(hook)
    training.net.hybridize()
    training.net._backend = "MKLDNN"
    training.net(mx.nd.ones((2, 1, 12, 12)))
    hook.close()
    assert "hybridized blocks are not saved" in caplog.text
    assert {"net_input_0", "net_output_0", "conv0_weight"} <= trial.names(0)
    assert "conv0_output_0" not in trial.names(0)


def test_a_model_that_was_not_initialised_fails_as_without_a_hook(trial: WrittenTrial) -> None:
    hook = every_step(trial, save_all=True)
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(3, in_units=2, prefix="dense0_"))
    hook.register_block(net)
    for hybridize in (False, True):
        net.hybridize(hybridize)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="has not been initialized"):
                net(mx.nd.ones((2, 2)))
