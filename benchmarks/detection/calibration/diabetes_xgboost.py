"""Gradient-boosted trees predict the progression of diabetes."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.boosting import Predict, boost
from benchmarks.detection.data import table
from benchmarks.detection.injecting import constant, leaking
from benchmarks.detection.program import Run


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    data = table("diabetes", scaled=False)
    if run.injects("data_leak"):
        data = leaking(data)
    elif run.injects("labels_constant"):
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

    def error(predict: Predict) -> float:
        targets = data.valid_targets.numpy()
        return float(np.square(predict(data.valid_inputs) - targets).mean() / targets.var())

    return boost(run, data, parameters, 60, error)
