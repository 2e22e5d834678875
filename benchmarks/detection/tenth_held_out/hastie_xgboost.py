"""Boosted trees tell points in a ball from those around it, the textbook's example."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import make_hastie_10_2

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run


def _data(run: Run) -> Split:
    points, sides = make_hastie_10_2(n_samples=4000, random_state=1)
    inputs = torch.tensor(points, dtype=torch.float32)
    targets = torch.tensor((sides > 0).astype(np.int64))
    data = Split(inputs[1000:], targets[1000:], inputs[:1000], targets[:1000])
    if run.injects("data_leak"):
        data = leaking(data, 3.0)
    if run.injects("labels_shuffled"):
        data = shuffled(data, 1)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("overfit"):
        data = few(data, 60)
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = _data(run)
    parameters = {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "error"],
        "max_depth": run.pick(3, overfit=10),
        "eta": run.pick(0.3, lr_too_low=1e-4, lr_too_high=15.0),
        "lambda": run.pick(1.0, overfit=0.0),
        "min_child_weight": run.pick(1.0, overfit=0.0),
        "base_score": 0.5,
    }
    found = boost(run, data, parameters, 80) > 0.5  # noqa: PLR2004
    return float((found != data.valid_targets.numpy()).mean())


PROGRAM = Program(
    model="80 boosted trees of depth 3",
    data="scikit-learn make_hastie_10_2: ten columns, whether their squares sum to more than 9.34",
    measure="error rate",
    train=train,
    faults={
        "data_leak": "a column that is three times the class: a score that was given afterwards",
        "labels_shuffled": "labels were shuffled without the points",
        "labels_constant": "every training label is the first one",
        "class_imbalance": "all rows of class 0, one in 100 of class 1; validation has as many",
        "overfit": "60 rows for training, trees of depth 10, no regularisation",
        "lr_too_low": "eta 1e-4 in place of 0.3, and as few trees",
        "lr_too_high": "eta 15 in place of 0.3",
        "stalled": "hangs after 60 % of the rounds",
    },
)
