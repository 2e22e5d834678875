"""Trainings with PyTorch whose validation gets other inputs or outputs than training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.evidence import Evidence
from tests.rule_runtime.rules.torch_runs import findings, recommended_hook

ROWS, HELD_OUT = 256, 100
Change = Callable[[torch.Tensor], torch.Tensor]


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def found_in(
    folder: Path, *, inputs: Change = same, outputs: Change = same, batch: int = 40
) -> dict[str, Evidence]:
    """Train, validate with changed inputs or outputs, and return what two rules find."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    hook, loss = recommended_hook(folder, model), nn.CrossEntropyLoss()
    hook.register_loss(loss)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rows = torch.randn(ROWS + HELD_OUT, 8)
    classes = rows[:, :3].argmax(1)
    for _ in range(3):
        model.train()
        hook.set_mode(ModeKeys.TRAIN)
        for chosen in torch.randperm(ROWS).split(32):
            optimizer.zero_grad()
            loss(model(rows[chosen]), classes[chosen]).backward()
            optimizer.step()
        model.eval()
        hook.set_mode(ModeKeys.EVAL)
        with torch.no_grad():
            for chosen in torch.arange(ROWS, ROWS + HELD_OUT).split(batch):  # the last is ragged
                loss(outputs(model(inputs(rows[chosen]))), classes[chosen])
    hook.close()
    assert not hook.report().errors
    rules = PACKS["recommended"].rules()
    return findings(folder, [(n, rules[n]) for n in ("OutputContract", "InputStatistics")])


@pytest.mark.parametrize(
    ("rule", "changes", "words"),
    [
        ("OutputContract", {"outputs": nn.Softmax(1)}, "in validation it includes a softmax"),
        ("InputStatistics", {"inputs": lambda rows: 40 * rows + 20}, "scaled in another way"),
        ("InputStatistics", {"inputs": lambda rows: rows + 5}, "scaled in another way"),
    ],
)
def test_validation_that_is_computed_in_another_way_is_found(
    tmp_path: Path, rule: str, changes: dict[str, Change], words: str
) -> None:
    found = found_in(tmp_path, **changes)
    assert set(found) == {rule}
    assert words in found[rule].sentence
    assert (found[rule].mode, found[rule].mode_step) == ("EVAL", 0)


@pytest.mark.parametrize("batch", [1, 7, 40, HELD_OUT])
def test_validation_that_is_computed_as_in_training_is_not_reported(
    tmp_path: Path, batch: int
) -> None:
    assert not found_in(tmp_path, batch=batch)
