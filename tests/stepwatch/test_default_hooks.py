"""The hooks of `stepwatch` save what the pack `recommended` needs, unless that is configured."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hook_layer.pytorch
import hook_layer.xgboost
import stepwatch.xgboost
from hook_layer.configuration.collection_manager import CollectionManager
from stepwatch.torch import Hook, ReductionConfig, SaveConfig, get_hook

SCRIPT = """
import sys

import torch
from torch import nn

torch.manual_seed(0)
model, criterion = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if len(sys.argv) > 1:
    from stepwatch.torch import Hook

    hook = Hook(*sys.argv[1:])
    hook.register_module(model)
    hook.register_optimizer(optimizer)
for _ in range(62):
    optimizer.zero_grad()
    criterion(model(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
    optimizer.step()
"""
DENSE = [*range(11), *range(12, 51, 2), 60]
PACK = {each.name for each in stepwatch.collections_for("recommended")}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPWATCH_CONFIG", raising=False)


def trained(hook: Hook, steps: int = 21) -> stepwatch.Trial:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    hook.register_module(model)
    for _ in range(steps):
        nn.CrossEntropyLoss()(model(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
    hook.close()
    return stepwatch.create_trial(hook.trial_uri)


def steps_of(trial: stepwatch.Trial, tensor: str) -> list[int]:
    return list(trial.tensor(tensor).steps())


def saved(run: Path) -> Mapping[str, list[int]]:
    trial = stepwatch.create_trial(str(run))
    return {name: steps_of(trial, name) for name in trial.tensor_names()}


def test_a_script_with_a_hook_saves_what_stepwatch_run_saves(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, str(script), str(tmp_path / "hook")], check=True)
    command = [sys.executable, "-m", "stepwatch", "run", "--out-dir", str(tmp_path / "run")]
    command += ["--stop", "never", "--", sys.executable, str(script)]
    subprocess.run(command, check=False, capture_output=True)
    found = saved(tmp_path / "hook")
    assert found == saved(tmp_path / "run" / "run-1")
    assert found["Sequential_0.weight"] == DENSE


def test_under_stepwatch_run_a_hook_saves_what_its_rules_need(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "stepwatch", "run", "--out-dir", str(tmp_path / "run")]
    command += ["--rule", "ExplodingTensor:collection_names=weights", "--save-interval", "30", "--"]
    command += [sys.executable, str(script), str(tmp_path / "hook")]
    subprocess.run(command, check=False, capture_output=True)
    found = saved(tmp_path / "hook")
    assert "gradient/Sequential_0.weight" not in found
    assert found["Sequential_0.weight"] == [0, 30, 60]


def test_it_has_the_byte_budget_of_stepwatch_run(tmp_path: Path) -> None:
    def limits(hook: hook_layer.pytorch.Hook) -> tuple[int | None, int | None]:
        options = hook.session.options
        return options.max_step_bytes, options.max_run_bytes

    assert limits(Hook(str(tmp_path))) == (16 << 20, 1 << 30)
    assert limits(Hook(str(tmp_path), max_step_bytes=None)) == (None, 1 << 30)
    assert limits(Hook(str(tmp_path), include_collections=["weights"])) == (None, None)


@pytest.mark.parametrize(
    "arguments",
    [
        {"include_collections": []},
        {"include_collections": ["weights"]},
        {"include_regex": "relu"},
        {"save_all": True},
    ],
)
def test_configured_collections_are_exact(arguments: dict[str, Any], tmp_path: Path) -> None:
    def of(hook_type: type[hook_layer.pytorch.Hook]) -> CollectionManager:
        return hook_type(str(tmp_path), **arguments).collection_manager

    ours, original = of(Hook), of(hook_layer.pytorch.Hook)
    assert ours.include == original.include
    assert ours.save_config == original.save_config


def test_a_save_config_alone_sets_all_steps(tmp_path: Path) -> None:
    trial = trained(Hook(str(tmp_path), save_config=SaveConfig(save_interval=8)))
    assert steps_of(trial, "Sequential_0.weight") == [0, 8, 16]
    assert steps_of(trial, "CrossEntropyLoss_output_0") == [0, 8, 16]


def test_reductions_alone_are_stored_besides_the_values_that_rules_need(tmp_path: Path) -> None:
    of_gradients = ReductionConfig(reductions=["max"])
    trial = trained(Hook(str(tmp_path), reduction_config=of_gradients), steps=3)
    assert trial.tensor("gradient/Sequential_0.weight").reduction_value(1, "max") is not None
    assert trial.tensor("1_output_0").value(1).shape == (8, 8)  # of a ReLU
    with pytest.raises(stepwatch.TrialError):
        trial.tensor("gradient/Sequential_0.weight").value(1)


def test_further_arguments_change_nothing_else(tmp_path: Path) -> None:
    hook = Hook(str(tmp_path), stop="flag", statistics=False)
    assert hook.collection_manager.include >= PACK
    assert hook.session.options.stop == "flag"
    with pytest.raises(TypeError, match="did you mean 'stop'"):
        Hook(str(tmp_path), stopp="flag")  # type: ignore[call-arg]
    with pytest.raises(stepwatch.HookConfigurationError, match="reduction_config"):
        Hook(str(tmp_path), reduction_config="max")


def test_a_configuration_file_keeps_the_defaults_of_the_original(tmp_path: Path) -> None:
    file = tmp_path / "hook.json"
    file.write_text(json.dumps({"LocalPath": str(tmp_path / "run")}))
    hook = Hook.create_from_json_file(file)
    assert hook.collection_manager.include == {"losses"}
    assert hook.session.options.max_step_bytes is None


def test_the_hooks_of_the_original_keep_its_defaults(tmp_path: Path) -> None:
    assert hook_layer.pytorch.Hook(str(tmp_path)).collection_manager.include == {"losses"}
    of_trees = hook_layer.xgboost.Hook(str(tmp_path))
    assert of_trees.collection_manager.include == {"metrics"}
    assert stepwatch.xgboost.Hook(str(tmp_path)).collection_manager.include >= PACK


def test_a_file_in_the_environment_that_names_collections_replaces_the_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def included(document: dict[str, Any]) -> set[str]:
        file = tmp_path / "stepwatch.json"
        file.write_text(json.dumps({"DebugHookConfig": document}))
        monkeypatch.setenv("STEPWATCH_CONFIG", str(file))
        return Hook(str(tmp_path)).collection_manager.include

    named = {"CollectionConfigurations": [{"CollectionName": "biases"}]}
    assert included(named) == {"biases", "losses"}
    assert included({}) >= PACK


def test_it_is_a_hook_like_any_other(tmp_path: Path) -> None:
    hook = Hook(str(tmp_path))
    assert isinstance(hook, hook_layer.pytorch.Hook)
    assert get_hook() is hook_layer.pytorch.get_hook() is hook
    assert pickle.loads(pickle.dumps(Hook)) is Hook
    assert f"{Hook.__module__}.{Hook.__qualname__}" == "stepwatch.torch.Hook"
    assert Hook.__doc__ == hook_layer.pytorch.Hook.__doc__


def test_the_pack_is_loaded_when_a_hook_is_made() -> None:
    code = (
        "import sys; from stepwatch.torch import Hook; print('rule_runtime.rules' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
