"""Every hook accepts the collections that Stepwatch's own rules use."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hook_layer.configuration.hook_setup import HookArguments, set_up
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.format.known_collections import KNOWN_COLLECTIONS
from hook_layer.format.modes import ModeKeys
from hook_layer.pytorch.collections import DEFAULTS
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.configuration.packs import PACKS
from stepwatch.torch import Hook

EVERY_STEP = SaveConfig(save_interval=1)
OF_EVERY_HOOK = {"losses"}


def test_what_packs_ask_for_is_known() -> None:
    asked = {config.name for pack in PACKS.values() for config in pack.collections()}
    assert asked <= KNOWN_COLLECTIONS.keys() | OF_EVERY_HOOK


@pytest.mark.parametrize("name", KNOWN_COLLECTIONS)
def test_a_known_collection_needs_no_regular_expression(name: str) -> None:
    setup = set_up(HookArguments("memory://known", include_collections=[name]), {}, DEFAULTS)
    assert name in {each.name for each in setup.manager.due(ModeKeys.TRAIN, 0)}


def trained(out_dir: Path, *collections: str) -> WrittenTrial:
    model, criterion = nn.Linear(4, 3), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(str(out_dir), save_config=EVERY_STEP, include_collections=list(collections))
    hook.register_module(model)
    for _ in range(2):
        optimizer.zero_grad()
        criterion(model(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
        optimizer.step()
    hook.close()
    return WrittenTrial(str(out_dir))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("optimizer_steps", "optimizer_steps/"),
        ("loss_inputs", "CrossEntropyLoss_input_0"),
        ("module_io", "Linear_output_0"),
        ("inputs", "Linear_input_0"),
    ],
)
def test_the_hook_fills_a_known_collection(name: str, tensor: str, tmp_path: Path) -> None:
    saved = trained(tmp_path, name).names(1)
    assert any(each.startswith(tensor) for each in saved), saved


def test_what_the_script_puts_into_a_known_collection_replaces_its_tensors() -> None:
    setup = set_up(HookArguments("memory://own", include_collections=["labels"]), {}, DEFAULTS)
    setup.manager.get("labels").include("^mine$")
    setup.manager.due(ModeKeys.TRAIN, 0)
    assert setup.manager.get("labels").include_regex == ["^mine$"]


def test_the_warning_of_a_misspelled_collection_names_the_known_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, "optimiser_steps")
    assert "Did you mean 'optimizer_steps'?" in caplog.text
