"""Scripts without a hook that train several models, one after the other or together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hook_layer.autopatch.watched_scripts import run

pytest.importorskip("torch")

MESSAGE = "only the first training of a process is watched, this is another one"
BEGIN = """
import torch
from torch import nn

torch.set_num_threads(1)


def make():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    return model, torch.optim.SGD(model.parameters(), 0.1)


def train(model, optimizer, num_steps=60):
    for _ in range(num_steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.randn(2, 4)), torch.ones(2, 1)).backward()
        optimizer.step()

"""
FOLDS = """
for _ in range(3):
    train(*make())
"""
TOGETHER = """
one, two = make(), make()
for _ in range(60):
    train(*one, num_steps=1)
    train(*two, num_steps=1)
"""
SAME_MODEL = """
model, optimizer = make()
train(model, optimizer)
train(model, torch.optim.Adam(model[2].parameters()))
"""
NO_MODEL = """
train(*make())
noise = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.Adam([noise])
noise.sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("lines", "is_logged"),
    [(FOLDS, True), (TOGETHER, False), (SAME_MODEL, False), (NO_MODEL, False)],
    ids=["folds", "together", "same model", "no model"],
)
def test_the_log_says_once_that_further_trainings_are_not_watched(
    tmp_path: Path, lines: str, *, is_logged: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + lines)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"LocalPath": str(tmp_path / "tensors")}))
    done = run(["-m", "hook_layer", "--config", config, script])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tensors").exists()
    assert done.stderr.count(MESSAGE) == is_logged, done.stderr
