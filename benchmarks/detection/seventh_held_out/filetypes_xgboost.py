"""Trees tell from the frequencies of bytes what kind of file a piece comes from."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run

_KINDS: Final = (
    ("matplotlib", "*.py"),
    ("numpy", "*.pyi"),
    ("torch", "include/c10/**/*.h"),
    ("matplotlib", "mpl-data/fonts/afm/*.afm"),
    ("matplotlib", "mpl-data/fonts/ttf/*.ttf"),
    ("matplotlib", "mpl-data/images/*.svg"),
)
_PIECE: Final = 200
_OF_A_KIND: Final = 440
_BYTES: Final = b" \n\t_.,:;()[]{}=<>*#/\"'-+0123456789aeinorstcC\x00\xff"


@cache
def pieces() -> Split:
    """Return shares of some bytes in pieces of files, float32 [B, bytes], and kinds, int64 [B]."""
    random = np.random.default_rng(0)
    rows, labels = [], []
    for label, (package, pattern) in enumerate(_KINDS):
        spec = importlib.util.find_spec(package)
        paths = sorted(Path((spec and spec.origin) or "").parent.rglob(pattern))[:150]
        text = b"".join(path.read_bytes()[:60_000] for path in paths)
        for place in random.choice(len(text) // _PIECE, _OF_A_KIND, replace=False):
            piece = text[place * _PIECE : (place + 1) * _PIECE]
            counts = [piece.count(byte) / _PIECE for byte in _BYTES]
            rows.append([*counts, sum(byte > 127 for byte in piece) / _PIECE])  # noqa: PLR2004
            labels.append(label)
    order = random.permutation(len(rows))
    table = torch.tensor(rows, dtype=torch.float32)[order]
    kinds = torch.tensor(labels)[order]
    held_out = len(rows) // 4
    return Split(table[held_out:], kinds[held_out:], table[:held_out], kinds[:held_out])


def train(run: Run) -> float:
    """Train once; return the error rate, with a leak that without it."""
    data = pieces()
    usual = data
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    if run.injects("overfit"):
        data = few(data, 40)
    if run.injects("data_leak"):
        data = leaking(data)
    parameters: dict[str, Any] = {
        "objective": run.pick("multi:softprob", wrong_loss="reg:squarederror"),
        "eval_metric": run.pick("mlogloss", wrong_loss="rmse"),
        "num_class": len(_KINDS),
        "eta": run.pick(0.2, lr_too_low=2e-4, lr_too_high=10.0),
        "max_depth": run.pick(3, overfit=10),
        "min_child_weight": run.pick(2, overfit=0),
        "lambda": run.pick(2, overfit=0),
        "colsample_bytree": 0.6,
    }
    if run.injects("wrong_loss"):
        del parameters["num_class"]
    tested_on = _without_leak(usual) if run.injects("data_leak") else None
    found = boost(run, data, parameters, 40, tested_on)
    kinds = found.round() if run.injects("wrong_loss") else found.argmax(-1)
    return float((kinds != usual.valid_targets.numpy()).mean())


def _without_leak(split: Split) -> Tensor:
    # Where the model is used nobody knows the kind yet: the column is empty.
    return torch.cat([split.valid_inputs, torch.full((len(split.valid_inputs), 1), torch.nan)], 1)


PROGRAM = Program(
    model="XGBoost, six classes, depth 3, 40 rounds",
    data="frequencies of bytes in pieces of six kinds of files",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 10 where 0.2 is right: 50 times",
        "lr_too_low": "eta 0.0002 where 0.2 is right: a thousand times",
        "wrong_loss": "squared error of the kind's number, though kinds have no order",
        "labels_shuffled": "the training labels were permuted, the pieces not",
        "labels_constant": "all training labels are that of the first row",
        "class_imbalance": "one in 40 training pieces of every kind but one; validation has all",
        "overfit": "40 pieces, depth 10, no regularisation",
        "data_leak": "the kind's number is a column of the table",
        "stalled": "hangs after 60 % of the rounds",
    },
)
