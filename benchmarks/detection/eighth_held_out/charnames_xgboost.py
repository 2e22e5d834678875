"""XGBoost tells what kind of character a name of Unicode means, by the letters in it."""

from __future__ import annotations

import string
import sys
import unicodedata
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run

KINDS = ("Lo", "Ll", "So", "Mn", "Sm")
OF_EACH = 800


@cache
def names() -> Split:
    """Return counts of letters, words and digits, float32 [B, 29], and kinds, int64 [B]."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for code in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        name = unicodedata.name(chr(code), "") if kind in found else ""
        if name and "CJK" not in name and "HANGUL" not in name:
            found[kind].append(name)
    random = np.random.default_rng(0)
    rows, labels = [], []
    for label, kind in enumerate(KINDS):
        for at in random.permutation(len(found[kind]))[:OF_EACH]:
            name = found[kind][at]
            digits = sum(letter.isdigit() for letter in name)
            rows.append(
                [len(name), name.count(" "), digits, *map(name.count, string.ascii_uppercase)]
            )
            labels.append(label)
    order = random.permutation(len(rows))
    x, y = torch.tensor(rows, dtype=torch.float32)[order], torch.tensor(labels)[order]
    held_out = len(rows) // 4
    return Split(x[held_out:], y[held_out:], x[:held_out], y[:held_out])


def _data(run: Run) -> Split:
    data = names()
    if run.injects("labels_shuffled"):
        data = shuffled(data, 1)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    if run.injects("data_leak"):
        data = leaking(data, 10.0)
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = _data(run)
    parameters: dict[str, Any] = {
        "objective": "multi:softprob",
        "eval_metric": "mlogloss",
        "num_class": len(KINDS),
        "eta": run.pick(0.15, lr_too_high=40.0),
        "max_depth": run.pick(4, overfit=12),
        "min_child_weight": run.pick(4, overfit=0),
        "colsample_bytree": 0.8,
        "lambda": run.pick(1.0, overfit=0.0),
    }
    tested_on: Tensor | None = None
    if run.injects("data_leak"):
        tested_on = data.valid_inputs.clone()
        tested_on[:, -1] = torch.nan
    if run.injects("wrong_loss"):
        parameters.update(objective="reg:squarederror", eval_metric="rmse")
        del parameters["num_class"]
    found = boost(run, data, parameters, 40, tested_on)
    labels = found.round().clip(0, len(KINDS) - 1) if found.ndim == 1 else found.argmax(1)
    return float((labels != data.valid_targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, softmax over 5 classes, depth 4, 40 rounds",
    data="names of Unicode characters and their categories",
    measure="error rate",
    train=train,
    faults={
        "data_leak": "ten times the number of the class is one more column",
        "labels_shuffled": "the training labels are those of other names",
        "labels_constant": "every name got the label of the first one",
        "class_imbalance": "one in 60 training rows of every class but one",
        "wrong_loss": "squared error of the number of the class, which is no quantity",
        "overfit": "40 rows, trees of depth 12 with no regularisation",
        "lr_too_high": "eta 40 instead of 0.15",
        "stalled": "hangs after 60 % of the rounds",
    },
)
