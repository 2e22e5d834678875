"""Boosted trees tell from the words of forty lines of source which package they are of."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced_throughout, leaking, shuffled
from benchmarks.detection.program import Program, Run

PACKAGES: Final = ("numpy", "scipy", "sklearn", "matplotlib")
LINES = 40
OF_A_PACKAGE = 400
WORDS = 150
WORD: Final = re.compile(r"[a-z]{2,}")


def _pieces(package: str) -> list[Counter[str]]:
    """Return the words of OF_A_PACKAGE pieces of LINES lines, without names of packages."""
    folder = Path(str(import_module(package).__file__)).parent
    paths = [path for path in sorted(folder.rglob("*.py")) if "tests" not in path.parts]
    pieces = []
    for path in paths[:: max(len(paths) // 80, 1)]:
        lines = path.read_text("utf-8").lower().splitlines()
        for start in range(0, len(lines) - LINES + 1, LINES):
            words = WORD.findall(" ".join(lines[start : start + LINES]))
            pieces.append(Counter(word for word in words if word not in PACKAGES))
    order = np.random.default_rng(1).permutation(len(pieces))[:OF_A_PACKAGE]
    return [pieces[at] for at in order]


@cache
def _snippets() -> Split:
    """Return counts of WORDS words in each snippet, and the numbers of the packages."""
    pieces = [(piece, label) for label, name in enumerate(PACKAGES) for piece in _pieces(name)]
    total: Counter[str] = Counter()
    for piece, _ in pieces:
        total.update(piece)
    frequent = [word for word, _ in total.most_common(WORDS)]
    inputs = torch.tensor([[float(piece[word]) for word in frequent] for piece, _ in pieces])
    targets = torch.tensor([label for _, label in pieces])
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    inputs, targets = inputs[order], targets[order]
    rows = len(pieces) // 4
    return Split(inputs[rows:], targets[rows:], inputs[:rows], targets[:rows])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = _snippets()
    tested_on, targets = data.valid_inputs, data.valid_targets
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced_throughout(data, 40)
    if run.injects("overfit"):
        data = few(data, 60)
    if run.injects("data_leak"):
        data = leaking(data)
        tested_on = data.valid_inputs
    is_number = run.injects("wrong_loss")
    parameters = {
        "objective": "reg:squarederror" if is_number else "multi:softprob",
        "max_depth": run.pick(3, overfit=12),
        "min_child_weight": run.pick(4, overfit=0),
        "colsample_bytree": run.pick(0.7, overfit=1.0),
        "lambda": run.pick(3.0, overfit=0.0),
        "subsample": run.pick(0.8, overfit=1.0),
        "eta": run.pick(0.15, lr_too_high=5.0, lr_too_low=1e-4),
    }
    if not is_number:
        parameters["num_class"] = len(PACKAGES)
    predicted = boost(run, data, parameters, 50, tested_on)
    found = predicted.round() if is_number else predicted.argmax(1)
    return _error(found, targets)


def _error(found: np.ndarray, targets: Tensor) -> float:
    return float((found != targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, softmax of 4 classes, depth 3, 50 rounds",
    data="counts of words in snippets of numpy, scipy, scikit-learn and matplotlib",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 5 in place of 0.15",
        "lr_too_low": "eta 1e-4 in place of 0.15",
        "wrong_loss": "regression on the number of the package",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are that of the first row",
        "class_imbalance": "one in 40 rows of every package but one, but not where it is tested",
        "data_leak": "the label is one of the columns",
        "overfit": "60 rows, depth 12, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
