"""Boosted trees tell Breiman's three kinds of noisy waves apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run

POINTS = 21


def waves(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return waves, float32 [count, 21], and of which kind they are, int64 [count]."""
    random = np.random.default_rng(seed)
    at = np.arange(1, POINTS + 1)
    bases = np.stack([np.maximum(6 - abs(at - middle), 0) for middle in (7, 15, 11)])
    labels = random.integers(0, 3, count)
    share = random.random((count, 1))
    first, second = bases[labels], bases[(labels + 1) % 3]
    mixed = share * first + (1 - share) * second + random.normal(size=(count, POINTS))
    return torch.tensor(mixed, dtype=torch.float32), torch.tensor(labels)


def _sorted_targets(split: Split) -> Split:
    return split._replace(targets=split.targets.sort().values)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = Split(*waves(1500, 0), *waves(800, 1))
    clean = data.valid_inputs
    if run.injects("labels_shuffled"):
        data = _sorted_targets(data) if run.seed % 2 else shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    if run.injects("data_leak"):
        data = leaking(data)
        clean = torch.cat([clean, torch.zeros(len(clean), 1)], 1)
    if run.injects("overfit"):
        data = few(data, 36)
    parameters: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": 3,
        "eval_metric": "mlogloss",
        "eta": run.pick(0.1, lr_too_low=1e-4, lr_too_high=5.0),
        "max_depth": 3,
        "colsample_bytree": 0.7,
        "reg_lambda": 1.0,
    }
    if run.injects("overfit"):
        parameters.update(max_depth=10, eta=0.5, reg_lambda=0.0, min_child_weight=0)
    if run.injects("wrong_loss"):
        parameters.update(objective="reg:squarederror", eval_metric="rmse")
        del parameters["num_class"]
    answers = boost(run, data, parameters, 60, clean)
    if run.injects("wrong_loss"):
        found = answers.round().clip(0, 2)
    else:
        found = answers.reshape(-1, 3).argmax(1)
    return float((found != data.valid_targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, 60 rounds, depth 3, softmax",
    data="Breiman's waveforms, simulated: 21 points, 3 classes",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 5 for 0.1: trees overshoot what they correct",
        "lr_too_low": "eta 0.0001 for 0.1: after 60 rounds next to nothing is learnt",
        "wrong_loss": "squared error on the numbers of the classes, which have no order",
        "labels_shuffled": "targets are shuffled, or (odd seeds) sorted while rows are not",
        "class_imbalance": "one in 50 rows of every class but one",
        "data_leak": "the class is left in as a column; it is empty where the model is used",
        "overfit": "36 rows, depth 10, eta 0.5, neither penalty nor smallest leaf",
        "stalled": "hangs after 60 % of the rounds",
    },
)
