"""A hook of a configuration file, in a script that need not register its model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

Log = pytest.LogCaptureFixture


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 3), nn.ReLU())


class Other(Net):
    pass


@pytest.fixture
def configuration(trial: WrittenTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    collections = [{"CollectionName": name} for name in ("weights", "gradients")]
    document = {
        "LocalPath": trial.uri,
        "HookParameters": {"save_interval": "2"},
        "CollectionConfigurations": collections,
    }
    path = tmp_path / "hook.json"
    path.write_text(json.dumps(document))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    return path


def train(model: nn.Module, criterion: nn.Module, num_steps: int = 5) -> None:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(num_steps):
        optimizer.zero_grad()
        criterion(model(torch.rand(2, 4)), torch.tensor([0, 1])).backward()
        optimizer.step()


def of_json() -> smd.Hook:
    return smd.Hook.create_from_json_file()


def of_get_hook() -> smd.Hook:
    hook = smd.get_hook(create_if_not_exists=True)
    assert hook is not None
    return hook


EXPECTED = {"Net_0.weight", "gradient/Net_0.weight", "CrossEntropyLoss_output_0"}


@pytest.mark.usefixtures("configuration")
@pytest.mark.parametrize("make", [of_json, of_get_hook])
@pytest.mark.parametrize("is_late", [False, True], ids=["hook first", "hook last"])
def test_the_first_model_that_trains_is_watched(
    make: Callable[[], smd.Hook], is_late: bool, trial: WrittenTrial
) -> None:
    made = (Net(), nn.CrossEntropyLoss()) if is_late else None
    hook = make()
    model, criterion = made or (Net(), nn.CrossEntropyLoss())
    with torch.no_grad():
        Other()(torch.rand(2, 4))  # trains nothing
    train(model, criterion)
    hook.close()
    indexes = trial.indexes()
    assert {step: (i.mode, i.mode_step) for step, i in indexes.items()} == {
        step: (smd.modes.GLOBAL, step) for step in (0, 2, 4)
    }
    for step in indexes:
        assert trial.names(step) >= EXPECTED


@pytest.mark.usefixtures("configuration")
def test_modes_are_those_that_the_script_sets(trial: WrittenTrial) -> None:
    hook, model = of_json(), Net()
    for mode in (smd.modes.TRAIN, smd.modes.EVAL):
        hook.set_mode(mode)
        model.train()
        train(model, nn.CrossEntropyLoss(), 2)
    hook.close()
    found = [(i.mode, i.mode_step) for i in trial.indexes().values()]
    assert found == [(smd.modes.TRAIN, 0), (smd.modes.EVAL, 0)]


@pytest.mark.usefixtures("configuration")
def test_a_script_that_registers_its_model_gets_it_watched_once(trial: WrittenTrial) -> None:
    hook, model, criterion = of_json(), Net(), nn.CrossEntropyLoss()
    hook.register_module(model)
    hook.register_loss(criterion)
    assert len(model._forward_pre_hooks) == 1
    train(Other(), criterion, 1)
    train(model, criterion, 5)
    hook.close()
    assert list(trial.indexes()) == [0, 2, 4]
    assert all(trial.names(step) >= EXPECTED for step in (0, 2, 4))
    assert not any("Other" in name for name in trial.names(0))


@pytest.mark.usefixtures("configuration")
def test_a_model_that_is_registered_while_it_is_watched_stays(
    trial: WrittenTrial, caplog: Log
) -> None:
    hook, model, criterion = of_json(), Net(), nn.CrossEntropyLoss()
    train(model, criterion, 2)
    hook.register_module(model)
    hook.register_loss(criterion)
    assert len(model._forward_pre_hooks) == 1
    train(model, criterion, 3)
    hook.close()
    assert list(trial.indexes()) == [0, 2, 4]
    assert trial.names(4) >= EXPECTED
    assert "registers a model" not in caplog.text


@pytest.mark.usefixtures("configuration")
def test_a_model_that_is_registered_later_replaces_the_one_that_was_found(
    trial: WrittenTrial, caplog: Log
) -> None:
    hook, model, criterion = of_json(), Net(), nn.CrossEntropyLoss()
    hook.register_loss(criterion)
    train(Other(), criterion, 2)
    hook.register_module(model)
    train(model, criterion, 3)
    train(Other(), criterion, 2)
    hook.close()
    assert list(trial.indexes()) == [0, 2, 4]
    assert "Other_0.weight" in trial.names(0)
    for step in (2, 4):
        assert trial.names(step) >= EXPECTED
        assert not any("Other" in name for name in trial.names(step))
    assert "from step 2 on the hook watches only the registered one" in caplog.text


@pytest.mark.usefixtures("configuration")
def test_the_newest_hook_waits_for_the_training(trial: WrittenTrial, tmp_path: Path) -> None:
    other = tmp_path / "other"
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"LocalPath": str(other)}))
    first, second = smd.Hook.create_from_json_file(path), of_json()
    train(Net(), nn.CrossEntropyLoss())
    for hook in (first, second):
        hook.close()
    assert list(trial.indexes()) == [0, 2, 4]
    assert not other.exists()


@pytest.mark.usefixtures("configuration")
def test_hooks_that_do_not_wait_look_at_no_module(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_before = len(torch_modules._global_forward_pre_hooks)
    smd.Hook(trial.uri)
    monkeypatch.setenv("USE_SMDEBUG", "0")
    of_json()
    assert len(torch_modules._global_forward_pre_hooks) == num_before
    monkeypatch.delenv("USE_SMDEBUG")
    hook, model = of_json(), Net()
    assert len(torch_modules._global_forward_pre_hooks) == num_before + 1
    hook.register_module(model)
    assert len(torch_modules._global_forward_pre_hooks) == num_before


def test_a_closed_hook_is_attached_to_nothing(configuration: Path, trial: WrittenTrial) -> None:
    smd.Hook.create_from_json_file(configuration).close()
    num_before = len(torch_modules._global_forward_pre_hooks)
    model: Any = Net()
    train(model, nn.CrossEntropyLoss(), 1)
    assert not model._forward_pre_hooks
    assert len(torch_modules._global_forward_pre_hooks) < num_before
    assert not trial.indexes()
