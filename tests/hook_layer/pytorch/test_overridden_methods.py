"""Subclasses of the hook that override what the original registers with torch."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hook_layer.pytorch import Hook, SaveConfig
from hook_layer.testing.written_trial import WrittenTrial

Noted = list[str]


class Recording(Hook):
    """Notes for each call which method it was."""

    noted: Noted


class OverridesPreHook(Recording):
    def forward_pre_hook(self, module: nn.Module, inputs: Any) -> None:
        self.noted.append("forward_pre_hook")
        super().forward_pre_hook(module, inputs)


class OverridesForwardHook(Recording):
    def forward_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.noted.append(f"forward_hook {type(module).__name__}")
        super().forward_hook(module, inputs, outputs)


class OverridesInputs(Recording):
    def _write_inputs(self, name: str, inputs: Any) -> None:
        self.noted.append(f"inputs of {name}")
        super()._write_inputs(name, inputs)


class OverridesOutputs(Recording):
    def _write_outputs(self, name: str, outputs: Any) -> None:
        self.noted.append(f"outputs of {name}")
        super()._write_outputs(name, outputs)


class OverridesBackwardHook(Recording):
    def backward_hook(self, tname: str) -> Callable[[Tensor], None]:
        original = super().backward_hook(tname)

        def back(gradient: Tensor) -> None:
            self.noted.append(f"gradient of {tname}")
            original(gradient)

        return back


class SavesNothingOfModules(Recording):
    def forward_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:  # noqa: ARG002
        self.noted.append(f"{type(module).__name__} is left out")


def new_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh())


def train(hook_type: type[Hook], trial: WrittenTrial, model: nn.Module) -> Noted:
    """Train two steps, and return what the hook noted."""
    hook = hook_type(trial.uri, save_config=SaveConfig(save_interval=1), save_all=True)
    noted: Noted = []
    if isinstance(hook, Recording):
        hook.noted = noted
    criterion = nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(criterion)
    for _ in range(2):
        model.zero_grad()
        criterion(model(torch.ones(3, 2)), torch.ones(3, 2)).backward()
    hook.close()
    return noted


NAMES = ["0", "1", "Sequential", "MSELoss"]
CLASSES = ["Linear", "Tanh", "Sequential", "MSELoss"]
PARAMETERS = ["Sequential_0.bias", "Sequential_0.weight"]
CASES = [
    (OverridesPreHook, ["forward_pre_hook"]),
    (OverridesForwardHook, [f"forward_hook {name}" for name in CLASSES]),
    (OverridesInputs, [f"inputs of {name}" for name in NAMES]),
    (OverridesOutputs, [f"outputs of {name}" for name in NAMES]),
    (OverridesBackwardHook, [f"gradient of {name}" for name in PARAMETERS]),
]


@pytest.mark.parametrize(("hook_type", "calls"), CASES)
def test_an_override_that_passes_calls_on_changes_nothing(
    hook_type: type[Recording], calls: Noted, trial: WrittenTrial, tmp_path: Path
) -> None:
    assert sorted(train(hook_type, trial, new_model())) == sorted(calls * 2)
    plain = WrittenTrial(str(tmp_path))
    train(Hook, plain, new_model())
    for step in (0, 1):
        found, expected = trial.values(step), plain.values(step)
        assert found.keys() == expected.keys()
        assert all((found[name] == expected[name]).all() for name in expected)


class ReadsNames(Recording):
    def forward_pre_hook(self, module: nn.Module, inputs: Any) -> None:
        self.noted.append(f"before {module._module_name}")
        super().forward_pre_hook(module, inputs)

    def forward_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:  # noqa: ARG002
        assert self.module_maps[module] == module._module_name
        self.noted.append(str(module._module_name))
        self._write_outputs(f"{module._module_name}_copy", outputs)


def test_names_of_modules_can_be_read_during_a_call_only(trial: WrittenTrial) -> None:
    model = new_model()
    vars(model[1])["_module_name"] = "1"  # the script's own
    hook = ReadsNames(trial.uri, save_config=SaveConfig(save_interval=1), save_all=True)
    hook.noted = []
    hook.register_module(model)
    attributes = [set(vars(module)) for module in model.modules()]
    model(torch.ones(3, 2)).sum().backward()
    hook.close()
    assert hook.noted == ["before Sequential", "0", "1", "Sequential"]
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert {f"{name}_copy_output_0" for name in ("0", "1", "Sequential")} <= trial.names(0)


def test_an_override_decides_what_is_saved(trial: WrittenTrial) -> None:
    assert train(SavesNothingOfModules, trial, new_model())
    saved = {name for name in trial.names(1) if "put_" in name}
    assert saved == {"MSELoss_input_0", "MSELoss_input_1", "MSELoss_output_0"}


@pytest.mark.parametrize(
    ("hook_type", "calls"), [*CASES, (ReadsNames, ["before Sequential", *NAMES])]
)
def test_a_compiled_model_calls_overrides(
    hook_type: type[Recording], calls: Noted, trial: WrittenTrial
) -> None:
    compiled = torch.compile(new_model(), backend="aot_eager", fullgraph=True)
    assert sorted(train(hook_type, trial, compiled)) == sorted(calls * 2)


@pytest.mark.parametrize(("hook_type", "calls"), CASES)
def test_neither_a_closed_hook_nor_a_copy_of_the_model_calls_overrides(
    hook_type: type[Recording], calls: Noted, trial: WrittenTrial
) -> None:
    hook, model = hook_type(trial.uri, save_all=True), new_model()
    hook.noted = []
    hook.register_module(model)
    deepcopy(model)(torch.ones(3, 2)).sum().backward()
    assert hook.noted == []
    hook.close()
    model(torch.ones(3, 2)).sum().backward()
    assert hook.noted == []
    assert calls


def test_an_error_of_an_override_reaches_the_script(trial: WrittenTrial) -> None:
    class Fails(Hook):
        def forward_hook(self, *_: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(Fails, trial, new_model())
