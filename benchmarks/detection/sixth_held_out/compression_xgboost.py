"""Boosted trees foretell how well a piece of source code can be compressed."""

from __future__ import annotations

import bz2
import os
import string
import zlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import unexplained

_SIZE: Final = 2048
_LETTERS: Final = (
    " ", "\n", "_", "#", '"', "'", "()", "[]", ".,:", "=+-*", string.digits,
    string.ascii_uppercase, "aeiou", "etaoin", "self",
)  # fmt: skip


@cache
def pieces() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return measures of pieces, float32 [B, 18], and their sizes by zlib and by bz2, [B]."""
    rows, sizes, others = [], [], []
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        text = path.read_text(errors="replace")
        for start in range(0, len(text) - _SIZE, 3 * _SIZE):
            piece = text[start : start + _SIZE]
            counts = Counter(piece)
            words = piece.split()
            rows.append(
                [sum(counts[letter] for letter in kind) / _SIZE for kind in _LETTERS]
                + [len(counts), len(set(words)) / len(words), len(words)]
            )
            sizes.append(len(zlib.compress(piece.encode())))
            others.append(len(bz2.compress(piece.encode())))
    return torch.tensor(rows), torch.tensor(sizes), torch.tensor(others)


def prepared(run: Run) -> Split:
    """Return the data as the run gets it."""
    inputs, sizes, others = pieces()
    if run.injects("data_leak"):
        inputs = torch.cat([inputs, others[:, None].float()], 1)
    share = sizes / _SIZE
    labels = (sizes // _SIZE).float() if run.injects("labels_constant") else share
    order = torch.randperm(len(share), generator=torch.Generator().manual_seed(2))
    valid, train = order[: len(order) // 4], order[len(order) // 4 :]
    data = Split(inputs[train], labels[train], inputs[valid], share[valid])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.sort().values)
    return few(data, 20) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    data = prepared(run)
    parameters = {
        "objective": run.pick("reg:squarederror", wrong_loss="reg:quantileerror"),
        "max_depth": run.pick(4, overfit=10),
        "eta": run.pick(0.1, lr_too_low=2e-4, lr_too_high=2.6),
        "min_child_weight": run.pick(3, overfit=0),
    }
    if run.injects("wrong_loss"):
        parameters |= {"quantile_alpha": 0.01, "eval_metric": "quantile"}
    tested = data.valid_inputs.clone()
    if run.injects("data_leak"):
        tested[:, -1] = 0.0  # nobody compresses twice
    found = boost(run, data, parameters, 100, tested)
    return unexplained(torch.tensor(found), data.valid_targets)


PROGRAM = Program(
    model="XGBoost, reg:squarederror, 100 trees of depth 4",
    data="the source of Python's library in pieces of 2,048 letters",
    measure="1 - R2 of the share that zlib leaves",
    train=train,
    faults={
        "lr_too_low": "eta of 0.0002",
        "lr_too_high": "eta of 2.6",
        "wrong_loss": "the quantile of 1 %: an objective copied from a search for lower bounds",
        "labels_constant": "the share by a division of whole numbers: always zero",
        "labels_shuffled": "the column of sizes was sorted, by itself",
        "data_leak": "the size by another method of compression is among the columns",
        "overfit": "20 pieces, deep trees, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
