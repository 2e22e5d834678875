"""The names of what is saved, plain and hybridized, and that both are the same values."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import pytest
from mxnet.gluon import nn

import hook_layer.mxnet as smd
from hook_layer.errors import HookConfigurationError
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.mxnet.gluon_training import EVERY_STEP, LOSS, Training, every_step, same

OF_THE_USER = {
    "conv0_bias",
    "conv0_input_0",
    "conv0_output_0",
    "conv0_relu_input_0",
    "conv0_relu_output_0",
    "conv0_weight",
    "gradient/conv0_bias",
    "gradient/conv0_weight",
}
WAYS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "hybridized": {},
    "static": {"static_alloc": True, "static_shape": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_users_network_has_exactly_these_names(trial: WrittenTrial, way: str) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_regex="conv0.*")
    training = Training(hook, hybridize=WAYS[way])
    for _ in range(3):
        training.step()
    hook.close()
    assert [trial.names(step) for step in sorted(trial.indexes())] == [{*OF_THE_USER, LOSS}] * 3
    assert hook.report().errors == {}


def test_values_are_the_same_plain_and_hybridized(trial: WrittenTrial) -> None:
    values: dict[str, list[dict[str, Any]]] = {}
    for way, hybridize in WAYS.items():
        smd.del_hook()
        own = WrittenTrial(f"{trial.uri}{way}/")
        hook = every_step(own, save_all=True)
        mx.random.seed(0)
        training = Training(hook, hybridize=hybridize)
        for _ in range(3):
            training.step()
        hook.close()
        assert hook.report().errors == {}
        values[way] = [own.values(step) for step in range(3)]
    assert {
        "net_input_0",
        "net_output_0",
        "flatten0_output_0",
        "pool0_input_0",
        "loss0_input_1",
    } < (values["plain"][0].keys())
    for step in range(3):
        assert same(values["hybridized"][step], values["plain"][step])
        assert same(values["static"][step], values["plain"][step])


def test_what_is_saved_unasked(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri)
    training = Training(hook)
    for _ in range(3):
        training.step()
    hook.close()
    assert {step: trial.names(step) for step in trial.indexes()} == {0: {LOSS}}
    assert trial.collections().collections["losses"].tensor_names == (LOSS,)


def test_collections_are_those_of_the_original(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["weights", "biases", "gradients"])
    Training(hook).step()
    hook.close()
    collections = trial.collections().collections
    assert {name: collections[name].tensor_names for name in ("weights", "biases")} == {
        "weights": ("conv0_weight", "dense0_weight"),
        "biases": ("conv0_bias", "dense0_bias"),
    }
    assert collections["losses"].include_regex == (".*loss._(?!input).*output",)
    assert "gradient/dense0_bias" in collections["gradients"].tensor_names


def test_a_block_that_is_called_twice_is_numbered(trial: WrittenTrial) -> None:
    class Twice(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__(prefix="twice_")
            self.dense = nn.Dense(5, flatten=False, activation="tanh", prefix="dense_")

        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
            return F.sum(self.dense(self.dense(F.slice_axis(x, axis=-1, begin=0, end=5))), (1, 2))

    expected = {"dense_input_0", "dense_input_1", "dense_output_0", "dense_output_1"}
    values = []
    ways: tuple[dict[str, Any] | None, ...] = (None, {})
    for hybridize in ways:
        own = WrittenTrial(f"{trial.uri}{hybridize is None}/")
        hook = smd.Hook(own.uri, save_config=EVERY_STEP, include_regex="^dense_(in|out)put")
        training = Training(hook, Twice(), hybridize=hybridize)
        training.net.initialize(init="one", force_reinit=True)
        mx.random.seed(1)
        training.step()
        training.step()
        hook.close()
        values.append(own.values(1))
    assert values[0].keys() - {LOSS} == expected
    assert same(values[1], values[0])


@pytest.mark.parametrize("hybridize", [None, {}], ids=["plain", "hybridized"])
@pytest.mark.parametrize(
    ("collection", "expected"),
    [
        ("relu_output", {"conv0_relu_output_0", "a_output_0"}),
        ("relu_input", {"conv0_relu_input_0", "a_input_0"}),
        ("tanh_output", {"b_output_0"}),
        ("sigmoid_input", {"dense1_sigmoid_input_0"}),
    ],
)
def test_layers_of_a_type_are_found_by_their_type(
    trial: WrittenTrial, collection: str, expected: set[str], hybridize: dict[str, Any] | None
) -> None:
    net = nn.HybridSequential(prefix="net_")
    net.add(
        nn.Conv2D(2, 5, activation="relu", prefix="conv0_"),
        nn.Activation("relu", prefix="a_"),
        nn.Activation("tanh", prefix="b_"),
        nn.Dense(4, activation="sigmoid", prefix="dense1_"),
        nn.Dense(10, prefix="dense2_"),
    )
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_collections=[collection])
    Training(hook, net, hybridize=hybridize).step()
    hook.close()
    assert trial.names(0) == {*expected, LOSS}
    assert set(trial.collections().collections[collection].tensor_names) == expected


def test_tensors_of_a_block_are_added_to_a_collection(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_collections=["mine"])
    training = Training(hook)
    collection = hook.get_collection("mine")
    assert isinstance(collection, smd.Collection)
    collection.add_block_tensors(training.net[1], inputs=True, outputs=True)
    training.step()
    hook.close()
    assert trial.names(0) == {"pool0_input_0", "pool0_output_0", LOSS}


def test_a_block_that_is_not_registered_is_a_mistake(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_collections=["mine"])
    collection = hook.get_collection("mine")
    assert isinstance(collection, smd.Collection)
    collection.add_block_tensors(nn.Dense(3, prefix="other_"))
    with pytest.raises(HookConfigurationError, match="the block other, which is not registered"):
        Training(hook).step()


def test_layers_that_are_added_behind_the_registration_count(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_regex="dense9")
    training = Training(hook)
    training.net.add(nn.Dense(10, prefix="dense9_"))
    training.net[-1].initialize()
    training.step()
    hook.close()
    names = {"dense9_input_0", "dense9_output_0", "dense9_weight", "dense9_bias"}
    gradients = {"gradient/dense9_weight", "gradient/dense9_bias"}
    assert trial.names(0) == {*names, *gradients, LOSS}
