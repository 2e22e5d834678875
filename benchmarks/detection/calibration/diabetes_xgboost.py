"""Boosted trees predict the progression of diabetes."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import table
from benchmarks.detection.injecting import constant, leaking
from benchmarks.detection.program import Program, Run


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    data = table("diabetes", scaled=False)
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("labels_constant"):
        data = constant(data)
    parameters = {
        "objective": "reg:squarederror",
        "max_depth": run.pick(2, overfit=10),
        "eta": run.pick(0.08, overfit=0.5, lr_too_low=1e-4),
        "min_child_weight": run.pick(5, overfit=1, without_split=1e6),
        "alpha": run.pick(0.0, weight_decay=1e6),
    }
    if run.injects("overfit"):
        parameters |= {"lambda": 0.0, "subsample": 1.0}
    predicted = boost(run, data, parameters, 60)
    targets = data.valid_targets.numpy()
    return float(np.square(predicted - targets).mean() / targets.var())


PROGRAM = Program(
    model="XGBoost, regression, depth 2, 60 rounds",
    data="scikit-learn diabetes",
    measure="1 - R2",
    train=train,
    faults={
        "overfit": "depth 10, eta 0.5, no regularisation",
        "lr_too_low": "eta 1e-4 in place of 0.08",
        "labels_constant": "all training targets are that of the first row",
        "weight_decay": "alpha 1e6 instead of 0",
        "without_split": "the least weight of a leaf is 1e6, more than that of all rows",
        "data_leak": "the target is one of the columns",
        "stalled": "hangs after 60 % of the rounds",
    },
)
