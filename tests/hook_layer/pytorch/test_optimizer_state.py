"""The state of optimisers: the collection `optimizer_variables`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

COLLECTION = smd.CollectionKeys.OPTIMIZER_VARIABLES
PARAMETERS = ("Net_fc.weight", "Net_fc.bias", "Net_out.weight", "Net_out.bias")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(3, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.fc(x).relu())
        return result


def make_hook(trial: WrittenTrial, **options: Any) -> smd.Hook:
    options.setdefault("save_config", smd.SaveConfig(save_interval=1))
    options.setdefault("include_collections", ["weights", "biases", COLLECTION])
    return smd.Hook(trial.uri, **options)


def state_of(net: nn.Module, *optimizers: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    names = {parameter: f"Net_{name}" for name, parameter in net.named_parameters()}
    return {
        f"{COLLECTION}/{names[parameter]}/{key}": value.detach().numpy().copy()
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def train(
    net: nn.Module, *optimizers: torch.optim.Optimizer, num_steps: int = 3
) -> list[dict[str, np.ndarray]]:
    """Train, and return the optimisers' state before each step."""
    before = []
    for _ in range(num_steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        net(torch.ones(2, 3)).square().sum().backward()
        before.append(state_of(net, *optimizers))
        for optimizer in optimizers:
            optimizer.step()
    return before


def state_names(trial: WrittenTrial, step: int) -> set[str]:
    return {name for name in trial.names(step) if name.startswith(f"{COLLECTION}/")}


@pytest.mark.parametrize("by_optimizer", [False, True])
@pytest.mark.parametrize(
    ("make", "options", "keys"),
    [
        (torch.optim.Adam, {"amsgrad": True}, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, {"momentum_buffer"}),
        (torch.optim.SGD, {"lr": 0.1}, set()),
        (torch.optim.Adagrad, {}, {"sum", "step"}),
    ],
)
def test_the_state_is_that_before_the_step(
    trial: WrittenTrial,
    make: type[torch.optim.Optimizer],
    options: dict[str, Any],
    keys: set[str],
    by_optimizer: bool,
) -> None:
    hook = make_hook(trial)
    net = Net()
    hook.register_module(net)
    optimizer = make(net.parameters(), **options)
    if by_optimizer:
        hook.register_optimizer(optimizer)
    expected = train(net, optimizer)
    hook.close()
    assert set(expected[-1]) == {f"{COLLECTION}/{p}/{key}" for p in PARAMETERS for key in keys}
    for step, tensors in enumerate(expected):
        assert state_names(trial, step) == set(tensors)
        for name, value in tensors.items():
            np.testing.assert_array_equal(trial.values(step)[name], value, strict=True)
    assert not hook.report().errors
    assert hook.report().late_tensors == 0


def test_two_optimizers(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = Net()
    hook.register_module(net)
    other = nn.Linear(1, 1)
    optimizers = [
        torch.optim.Adam([*net.fc.parameters(), *other.parameters()]),
        torch.optim.SGD(net.out.parameters(), lr=0.1, momentum=0.5),
    ]
    expected = train(net, *optimizers)
    hook.close()
    for step in range(3):
        assert state_names(trial, step) == set(expected[step])
        for name in expected[step]:
            np.testing.assert_array_equal(trial.values(step)[name], expected[step][name])
    assert f"{COLLECTION}/Net_out.weight/momentum_buffer" in trial.names(2)


def test_weights_and_biases_stay_what_they_are(trial: WrittenTrial) -> None:
    """The original's reader searches for the patterns of the collections file in all names."""
    hook = make_hook(trial)
    net = Net()
    hook.register_module(net)
    train(net, torch.optim.Adam(net.parameters()), num_steps=2)
    hook.close()
    collections = trial.collections().collections
    assert collections["weights"].tensor_names == ("Net_fc.weight", "Net_out.weight")
    assert collections["biases"].tensor_names == ("Net_fc.bias", "Net_out.bias")
    assert set(collections[COLLECTION].tensor_names) == state_names(trial, 1)
    for collection in collections.values():
        found = {n for n in trial.names(1) for p in collection.include_regex if re.search(p, n)}
        assert found == set(collection.tensor_names)


def test_without_the_collection_all_is_as_the_original_has_it(trial: WrittenTrial) -> None:
    hook = make_hook(trial, save_all=True, include_collections=None)
    net = Net()
    hook.register_module(net)
    train(net, torch.optim.Adam(net.parameters()), num_steps=2)
    hook.close()
    collections = trial.collections().collections
    assert COLLECTION not in collections
    assert collections["weights"].include_regex == ("^(?!gradient).*weight",)
    assert collections["biases"].include_regex == ("^(?!gradient).*bias",)
    assert not state_names(trial, 1)


@pytest.mark.parametrize("how", ["get_collection", "include", "file"])
def test_the_collection_may_be_asked_for_in_several_ways(
    trial: WrittenTrial, how: str, tmp_path: Path
) -> None:
    if how == "file":
        path = tmp_path / "configuration.json"
        wanted = {"CollectionName": COLLECTION, "CollectionParameters": {"save_interval": "2"}}
        path.write_text(json.dumps({"LocalPath": trial.uri, "CollectionConfigurations": [wanted]}))
        hook = smd.Hook.create_from_json_file(str(path))
    else:
        hook = make_hook(trial, save_all=how == "get_collection", include_collections=None)
    if how == "include":
        hook.collection_manager.include.add(COLLECTION)
    elif how == "get_collection":
        hook.get_collection(COLLECTION).save_config = smd.SaveConfig(save_interval=2)
    net = Net()
    hook.register_module(net)
    expected = train(net, torch.optim.Adam(net.parameters()))
    hook.close()
    assert state_names(trial, 2) == set(expected[2])


def test_only_due_steps_of_training_have_it(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.get_collection(COLLECTION).save_config = smd.SaveConfig(save_interval=2)
    net = Net()
    hook.register_module(net)
    optimizer = torch.optim.Adam(net.parameters())
    train(net, optimizer, num_steps=4)
    hook.set_mode(smd.modes.EVAL)
    train(net, optimizer, num_steps=2)
    hook.close()
    assert [bool(state_names(trial, step)) for step in range(6)] == [
        False,  # there is no state before the first step
        False,
        True,
        False,
        False,
        False,
    ]
    assert "Net_fc.weight" in trial.names(5)


def test_it_can_be_reduced(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.get_collection(COLLECTION).reduction_config = smd.ReductionConfig(norms=["l2"])
    net = Net()
    hook.register_module(net)
    expected = train(net, torch.optim.Adam(net.parameters()))
    hook.close()
    name = f"{COLLECTION}/Net_fc.weight/exp_avg"
    values = trial.values(2)
    assert name not in values
    norm = np.linalg.norm(expected[2][name])
    assert values[f"smdebug/reductions/l2/{name}"] == pytest.approx(norm, rel=1e-6)
    assert trial.statistics(2)[name]["l2"] == pytest.approx(norm, rel=1e-6)
