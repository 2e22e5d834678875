"""Collections that take the layers of a type, whatever these are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

EVERY_STEP = smd.SaveConfig(save_interval=1)


class Net(nn.Module):
    """Layers under names that say nothing, one of them called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.a = nn.ReLU()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU6(), nn.Linear(4, 4), nn.Tanh())
        self.b = nn.Sigmoid()
        self.c = nn.LeakyReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(self.a(self.first(x)))
        result: torch.Tensor = self.c(self.b(self.block(x)))
        return result


def layers(names: set[str]) -> set[str]:
    return {name for name in names if "Loss" not in name}


def run(hook: smd.Hook, net: nn.Module) -> None:
    hook.register_module(net)
    for _ in range(2):
        net(torch.randn(3, 4)).sum().backward()
    hook.close()


@pytest.mark.parametrize(
    ("collection", "expected"),
    [
        ("relu_output", {"a_output_0", "a_output_1", "block.1_output_0"}),
        ("relu_input", {"a_input_0", "a_input_1", "block.1_input_0"}),
        ("tanh_input", {"block.3_input_0"}),
        ("tanh_output", {"block.3_output_0"}),
        ("sigmoid_input", {"b_input_0"}),
        ("sigmoid_output", {"b_output_0"}),
    ],
)
def test_layers_of_a_type_are_found_by_their_type(
    trial: WrittenTrial, collection: str, expected: set[str]
) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_collections=[collection])
    run(hook, Net())
    assert [layers(trial.names(step)) for step in (0, 1)] == [expected, expected]
    assert set(trial.collections().collections[collection].tensor_names) == expected


def test_what_the_user_put_in_stays_in(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_collections=["relu_output"])
    hook.get_collection("relu_output").include("^c_output")
    run(hook, Net())
    expected = {"a_output_0", "a_output_1", "block.1_output_0", "c_output_0"}
    assert layers(trial.names(0)) == expected


def test_no_layer_is_saved_unless_it_is_asked_for(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_collections=["weights"])
    run(hook, Net())
    assert not [name for name in trial.names(0) if "put_" in name and "Loss" not in name]
    assert "relu_output" not in trial.collections().collections


def test_models_that_are_registered_later_count_too(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=EVERY_STEP, include_collections=["relu_output"])
    first, second = Net(), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    hook.register_module(first)
    first(torch.randn(3, 4)).sum().backward()
    hook.register_module(second)
    first(torch.randn(3, 4)).sum().backward()
    second(torch.randn(3, 4)).sum().backward()
    hook.close()
    saved = set().union(*(trial.names(step) for step in trial.indexes()))
    assert "1_output_0" in saved
    assert "a_output_0" in trial.names(0)


def test_a_configuration_file_asks_for_them_by_name(tmp_path: Path) -> None:
    out_dir = tmp_path / "tensors"
    parameters = {"include_regex": ".*relu_output", "save_interval": "1"}
    collection = {"CollectionName": "relu_output", "CollectionParameters": parameters}
    configuration = {"LocalPath": str(out_dir), "CollectionConfigurations": [collection]}
    path = tmp_path / "hook.json"
    path.write_text(json.dumps(configuration))
    run(smd.Hook.create_from_json_file(path), Net())
    names = WrittenTrial(str(out_dir)).names(0)
    assert layers(names) == {"a_output_0", "a_output_1", "block.1_output_0"}


def test_a_model_need_not_have_such_layers(trial: WrittenTrial) -> None:
    hook = smd.Hook(
        trial.uri, save_config=EVERY_STEP, include_collections=["tanh_input", "relu_output"]
    )
    run(hook, nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert layers(trial.names(0)) == {"1_output_0"}
    assert trial.collections().collections["tanh_input"].tensor_names == ()
