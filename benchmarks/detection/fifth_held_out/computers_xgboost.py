"""Boosted trees foretell how fast a computer is said to be from its clock, memory and channels.

Faults:
    lr_too_high: eta of 5, where 0.05 was meant.
    lr_too_low: eta 1e-4 in place of 0.05.
    labels_shuffled: targets are sorted by a join that inputs did not go through.
    overfit: 12 rows, deep trees, no regularisation.
    data_leak: the published performance is one of the columns.
    stalled: the machine hangs.
"""

from __future__ import annotations

import csv
import gzip
import math
from functools import cache
from pathlib import Path

import sklearn
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import unexplained

FOLDER = "datasets/tests/data/openml/id_561"
HELD_OUT = 60


@cache
def _computers() -> Split:
    """Return six measures of computers [B, 6], and the logarithm of their performance [B]."""
    (path,) = (Path(sklearn.__file__).parent / FOLDER).glob("data-*.arff.gz")
    text = gzip.decompress(path.read_bytes()).decode()
    body = text[text.upper().index("@DATA") :].splitlines()[1:]
    rows = [[float(cell) for cell in row[1:]] for row in csv.reader(body) if len(row) > 1]
    table = torch.tensor(rows)[
        torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    ]
    inputs, targets = table[:, :-1], table[:, -1].log()
    return Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _computers()
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("data_leak"):
        return leaking(data)
    return few(data, 12) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    data = _data(run)
    parameters = {
        "objective": "reg:squarederror",
        "eval_metric": ["rmse", "mae"],
        "max_depth": run.pick(3, overfit=12),
        "lambda": run.pick(2.0, overfit=0.0),
        "eta": run.pick(0.05, lr_too_high=5.0, lr_too_low=1e-4),
    }
    predicted = torch.tensor(boost(run, data, parameters, 120))
    error = unexplained(predicted, data.valid_targets)
    return error if math.isfinite(error) else math.inf


PROGRAM = Program(
    model="XGBoost, regression, depth 3, 120 rounds",
    data="computers of about 1980, from a file that comes with scikit-learn's tests",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 5 in place of 0.05",
        "lr_too_low": "eta 1e-4 in place of 0.05",
        "labels_shuffled": "training targets are permuted",
        "overfit": "12 rows for training, depth 12, no regularisation",
        "data_leak": "the target is one of the columns",
        "stalled": "hangs after 60 % of the rounds",
    },
)
