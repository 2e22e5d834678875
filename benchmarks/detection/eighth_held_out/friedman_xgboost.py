"""XGBoost fits Friedman's first function."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_friedman1

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import unexplained

ROWS, HELD_OUT = 1500, 500


def friedman() -> Split:
    """Return 10 columns, float32 [B, 10], and the function of 5 of them with noise, [B]."""
    inputs, targets = make_friedman1(ROWS + HELD_OUT, noise=1.0, random_state=0)
    x, y = torch.tensor(inputs.astype(np.float32)), torch.tensor(targets.astype(np.float32))
    return Split(x[:ROWS], y[:ROWS], x[ROWS:], y[ROWS:])


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    data = friedman()
    if run.injects("labels_shuffled"):
        data = shuffled(data, 3)
    if run.injects("labels_constant"):
        # A join by a wrong key: every row got the first value.
        data = data._replace(targets=torch.full_like(data.targets, float(data.targets[0])))
    if run.injects("overfit"):
        data = few(data, 50)
    tested_on = None
    if run.injects("data_leak"):
        data = leaking(data)
        tested_on = data.valid_inputs.clone()
        tested_on[:, -1] = torch.nan
    parameters: dict[str, Any] = {
        "objective": "reg:squarederror",
        "eval_metric": "rmse",
        "eta": run.pick(0.12, lr_too_high=2.6, lr_too_low=1.2e-4),
        "max_depth": run.pick(3, overfit=10),
        "min_child_weight": run.pick(5, overfit=0),
        "lambda": run.pick(1.0, overfit=0.0),
        "colsample_bytree": 0.9,
    }
    found = torch.tensor(boost(run, data, parameters, 90, tested_on))
    return unexplained(found, data.valid_targets)


PROGRAM = Program(
    model="XGBoost, squared error, depth 3, 90 rounds",
    data="Friedman's first function with noise",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 2.6 instead of 0.12",
        "lr_too_low": "eta 1.2e-4 instead of 0.12, 1,000 times too low",
        "overfit": "50 rows, trees of depth 10 with no regularisation",
        "labels_shuffled": "the training targets are those of other rows",
        "labels_constant": "a failed join gave all rows the target of the first one",
        "data_leak": "the target is one more column",
    },
)
