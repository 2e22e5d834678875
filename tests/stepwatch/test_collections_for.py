"""`stepwatch.collections_for`: a hook in a script saves what rules need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stepwatch
from stepwatch.torch import Hook, SaveConfig


def train(hook: Hook, steps: int = 21) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.register_module(model)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(model(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
        optimizer.step()
    hook.close()


def num_judged(run: Path) -> int:
    states = stepwatch.evaluate(run)
    return sum(not state.has_evaluated_nothing for state in states.values())


def test_the_rules_of_a_pack_can_judge_what_a_hook_saves_for_them(tmp_path: Path) -> None:
    every_10 = SaveConfig(save_interval=10)
    train(Hook(str(tmp_path / "losses"), save_config=every_10, include_collections=[]))
    collections = stepwatch.collections_for("recommended")
    train(Hook(str(tmp_path / "pack"), include_collections=collections))
    assert num_judged(tmp_path / "losses") < 5
    assert num_judged(tmp_path / "pack") > 15


def test_rules_by_name_with_an_interval_beside_names_of_collections(tmp_path: Path) -> None:
    collections = stepwatch.collections_for(["IneffectiveSteps"], save_interval=5)
    assert {each.name for each in collections} == {"optimizer_steps", "weights"}
    every_step = SaveConfig(save_interval=1)
    hook = Hook(
        str(tmp_path / "run"), include_collections=["biases", *collections], save_config=every_step
    )
    train(hook, steps=6)
    trial = stepwatch.create_trial(str(tmp_path / "run"))
    assert trial.tensor("Sequential_0.bias").steps() == [0, 1, 2, 3, 4, 5]
    assert trial.tensor("Sequential_0.weight").steps() == [0, 5]


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, [*range(11), 12, 14, 16, 18, 20]),
        ({"begins_densely": False}, [0, 10, 20]),
        ({"save_interval": 7}, [0, 7, 14]),
        ({"save_interval": 7, "begins_densely": True}, [*range(11), 12, 14, 16, 18, 20]),
    ],
)
def test_a_dense_start_unless_an_interval_is_given(
    arguments: Any, steps: list[int], tmp_path: Path
) -> None:
    collections = stepwatch.collections_for(["NonFinite"], **arguments)
    never = SaveConfig(end_step=0)
    train(Hook(str(tmp_path), include_collections=collections, save_config=never))
    assert stepwatch.create_trial(str(tmp_path)).tensor("Sequential_0.weight").steps() == steps


def test_values_begin_densely_only_if_that_is_asked_for() -> None:
    def dense(**arguments: Any) -> set[bool]:
        collections = stepwatch.collections_for("recommended", **arguments)
        values = [each for each in collections if each.parameters["save_raw_tensor"] == "True"]
        return {"train.save_steps" in each.parameters for each in values}

    assert dense() == {False}
    assert dense(begins_densely=True) == {True}


@pytest.mark.parametrize("rules", ["recomended", ["NonFinit"], [], [3]])
def test_what_is_no_rule_is_refused(rules: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        stepwatch.collections_for(rules)


def test_a_mistake_in_a_collection_is_refused(tmp_path: Path) -> None:
    collection = stepwatch.CollectionConfig("weights", {"save_intervals": "5"})
    with pytest.raises(stepwatch.HookConfigurationError, match="did you mean 'save_interval'"):
        Hook(str(tmp_path), include_collections=[collection])
