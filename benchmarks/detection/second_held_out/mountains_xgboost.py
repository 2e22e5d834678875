"""Boosted trees tell which places of a map are mountains: many small steps, judged by AUC."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import mountains
from benchmarks.detection.injecting import constant, imbalanced_throughout, leaking, shuffled
from benchmarks.detection.program import Program, Run


def train(run: Run) -> float:
    """Train once; return the mean of both classes' log losses."""
    data = mountains()
    tested_on, targets = data.valid_inputs, data.valid_targets.numpy()
    weight = 9.0
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data, weight = imbalanced_throughout(data, 60), 1.0
    if run.injects("data_leak"):
        data = leaking(data)
        tested_on = data.valid_inputs
    parameters = {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "auc"],
        "max_depth": 5,
        "eta": run.pick(0.02, lr_too_low=2e-4),
        "base_score": 0.5,
        "scale_pos_weight": weight,
        "colsample_bytree": 0.8,
    }
    predicted = boost(run, data, parameters, 120, tested_on).clip(1e-6, 1 - 1e-6)
    losses = -np.log(np.where(targets == 1, predicted, 1 - predicted))
    return float(np.mean([losses[targets == label].mean() for label in (0, 1)]))


PROGRAM = Program(
    model="XGBoost, binary, depth 5, 120 rounds of 0.02, AUC, weight 9 for the rare class",
    data="places and heights of matplotlib's topobathy",
    measure="mean of both classes' log losses",
    train=train,
    faults={
        "lr_too_low": "eta 2e-4 in place of 0.02",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 mountains, no weight; but not where it is tested",
        "data_leak": "the label is one of the columns",
        "stalled": "hangs after 60 % of the rounds",
    },
)
