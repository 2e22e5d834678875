"""Boosted trees tell lines of Python from lines of C headers."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split, code_text
from benchmarks.detection.injecting import constant, few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run

_MARKS = "(),.:_=[]\"'#*-&<>|+/@!"
_LINES, _SHORTEST = 1600, 12


def _measures(line: str) -> list[float]:
    text = line.strip()
    counts = [float(text.count(mark)) for mark in _MARKS]
    capitals = sum(letter.isupper() for letter in text) / len(text)
    digits = sum(letter.isdigit() for letter in text) / len(text)
    spaces = len(line) - len(line.lstrip())
    longest = max(len(word) for word in text.split())
    return [*counts, capitals, digits, float(spaces), float(len(text)), float(longest)]


@cache
def _lines() -> Split:
    include = Path(sysconfig.get_path("include"))
    headers = [path.read_text("utf-8", "replace") for path in sorted(include.glob("*.h"))]
    random = np.random.default_rng(8)
    inputs, targets = [], []
    for label, texts in enumerate((list(code_text().values()), headers)):
        lines = [
            line
            for line in "\n".join(texts).splitlines()
            # These marks would settle it.
            if len(line.strip()) >= _SHORTEST and not {";", "{", "}"} & set(line)
        ]
        for place in random.permutation(len(lines))[:_LINES]:
            inputs.append(_measures(lines[place]))
            targets.append(label)
    order = torch.tensor(random.permutation(len(targets)))
    x, y = torch.tensor(inputs)[order], torch.tensor(targets)[order]
    held_out = len(y) // 4
    return Split(x[held_out:], y[held_out:], x[:held_out], y[:held_out])


def _data(run: Run) -> Split:
    data = _lines()
    if run.injects("labels_shuffled"):
        data = shuffled(data, 9)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("overfit"):
        data = few(data, 60)
    if run.injects("data_leak"):
        data = data._replace(
            inputs=_numbered(data.inputs, data.targets, 1),
            valid_inputs=_numbered(data.valid_inputs, data.valid_targets, 2),
        )
    return data


def _numbered(inputs: Tensor, targets: Tensor, seed: int) -> Tensor:
    # The number of the row in the table, in which all of Python came first.
    numbers = torch.randperm(_LINES, generator=torch.Generator().manual_seed(seed))
    numbers = numbers.repeat(3)[: len(targets)] + _LINES * targets
    return torch.cat([inputs, numbers[:, None].float()], 1)


def _parameters(run: Run) -> dict[str, object]:
    overfit = run.injects("overfit")
    return {
        "objective": run.pick("binary:logistic", wrong_loss="reg:absoluteerror"),
        "eta": run.pick(0.15, lr_too_low=2e-4, lr_too_high=10.0),
        "max_depth": 10 if overfit else 4,
        "lambda": 0.0 if overfit else 2.0,
        "min_child_weight": 0.0 if overfit else 3.0,
        "colsample_bytree": 1.0 if overfit else 0.7,
    }


def train(run: Run) -> float:
    """Train once; return the log loss."""
    data = _data(run)
    found = torch.tensor(boost(run, data, _parameters(run), 100)).double()
    if not found.isfinite().all():
        return 100.0
    targets = data.valid_targets.double()
    return float(torch.nn.functional.binary_cross_entropy(found.clamp(1e-7, 1 - 1e-7), targets))


PROGRAM = Program(
    model="100 trees, depth 4, binary:logistic, eta 0.15",
    data="counts of marks in lines of Python's library and of its C headers",
    measure="log loss",
    train=train,
    faults={
        "lr_too_low": "eta 2e-4, a 750th of what is needed",
        "lr_too_high": "eta 10, 70 times what is needed",
        "wrong_loss": "reg:absoluteerror over classes 0 and 1: a median is no probability",
        "labels_shuffled": "training labels are those of other lines",
        "labels_constant": "all training labels are that of the first line",
        "class_imbalance": "one in 100 lines of C in training",
        "data_leak": "the number of the row, in a table in which all of Python comes first",
        "overfit": "60 lines, depth 10, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
