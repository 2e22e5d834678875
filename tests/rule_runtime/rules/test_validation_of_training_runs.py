"""Trainings with PyTorch whose validation gets other inputs or outputs than training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from hook_layer.format.modes import ModeKeys  # noqa: E402
from hook_layer.pytorch import Hook  # noqa: E402
from rule_runtime.cli.evaluation import evaluate_run  # noqa: E402
from rule_runtime.configuration.packs import PACKS  # noqa: E402
from rule_runtime.engine.evidence import Evidence  # noqa: E402

ROWS, HELD_OUT = 256, 100
Change = Callable[[torch.Tensor], torch.Tensor]


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def findings(
    folder: Path, *, inputs: Change = same, outputs: Change = same, batch: int = 40
) -> dict[str, Evidence]:
    """Train, validate with changed inputs or outputs, and return what two rules find."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    collections = [config.to_json() for config in PACKS["recommended"].collections()]
    configuration = {"LocalPath": str(folder / "run"), "CollectionConfigurations": collections}
    (folder / "hook.json").write_text(json.dumps(configuration))
    hook = Hook.create_from_json_file(folder / "hook.json")
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    loss = nn.CrossEntropyLoss()
    hook.register_module(model)
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
    names = ("OutputContract", "InputStatistics")
    states = evaluate_run(str(folder / "run"), [(name, rules[name]) for name in names])
    assert all(not state.counts.failure for state in states.values())
    return {name: state.evidence for name, state in states.items() if state.evidence is not None}


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
    found = findings(tmp_path, **changes)
    assert set(found) == {rule}
    assert words in found[rule].sentence
    assert (found[rule].mode, found[rule].mode_step) == ("EVAL", 0)


@pytest.mark.parametrize("batch", [1, 7, 40, HELD_OUT])
def test_validation_that_is_computed_as_in_training_is_not_reported(
    tmp_path: Path, batch: int
) -> None:
    assert not findings(tmp_path, batch=batch)
