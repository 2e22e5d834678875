"""Boosted trees foretell how wide a letter is set."""

from __future__ import annotations

import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split, fonts
from benchmarks.detection.injecting import few, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import unexplained


def _data(run: Run) -> Split:
    data = few(fonts(scaled=False), 2000)
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("data_leak"):
        return leaking(data)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    data = _data(run)
    parameters = {
        "objective": "reg:squarederror",
        "max_depth": run.pick(4, overfit=12),
        "lambda": run.pick(1.0, overfit=0.0),
        "eta": run.pick(0.2, lr_too_low=1e-4, lr_too_high=3.0),
    }
    predicted = torch.tensor(boost(run, data, parameters, 50))
    return unexplained(predicted, data.valid_targets)


PROGRAM = Program(
    model="XGBoost, regression, depth 4, 50 rounds",
    data="measures of letters of the PostScript fonts that come with matplotlib",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 3 in place of 0.2",
        "lr_too_low": "eta 1e-4 in place of 0.2",
        "labels_shuffled": "training targets are permuted",
        "data_leak": "the target is one of the columns",
        "overfit": "60 rows for training, depth 12, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
