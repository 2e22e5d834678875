"""Boosted trees tell handwritten digits apart by their ink in each row, column and diagonal."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import (
    constant,
    few,
    imbalanced_throughout,
    leaking,
    shuffled,
)
from benchmarks.detection.program import Program, Run

DIGITS = 10


@cache
def projections() -> Split:
    """Return sums of rows, columns and diagonals, float32 [B, 46], and digits, int64 [B]."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8)
    flipped = images[:, :, ::-1]
    diagonals = [
        of.diagonal(offset, 1, 2).sum(1) for of in (images, flipped) for offset in range(-7, 8)
    ]
    inputs = np.column_stack([images.sum(1), images.sum(2), *diagonals])
    order = np.random.default_rng(0).permutation(len(inputs))
    rows = torch.tensor(inputs[order], dtype=torch.float32)
    targets = torch.tensor(labels[order])
    cut = len(rows) // 4
    return Split(rows[cut:], targets[cut:], rows[:cut], targets[:cut])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = projections()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("overfit"):
        data = few(data, 60)
    if run.injects("data_leak"):
        data = leaking(data)
    tested_on, targets = data.valid_inputs, data.valid_targets.numpy()
    if run.injects("class_imbalance"):
        data = imbalanced_throughout(data, 50)
    is_number = run.injects("wrong_loss")
    parameters = {
        "objective": "reg:squarederror" if is_number else "multi:softprob",
        "max_depth": run.pick(4, overfit=10),
        "eta": run.pick(0.3, lr_too_high=3.0, lr_too_low=1e-5),
        "colsample_bytree": 0.6,
    }
    if not is_number:
        parameters["num_class"] = DIGITS
    predicted = boost(run, data, parameters, 40, tested_on)
    answers = predicted.round() if is_number else predicted.argmax(1)
    return float((answers != targets).mean())


PROGRAM = Program(
    model="XGBoost, softmax of ten classes, depth 4, 40 rounds",
    data="scikit-learn digits, sums of their rows, columns and diagonals",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 3 in place of 0.3",
        "lr_too_low": "eta 1e-5 in place of 0.3",
        "wrong_loss": "squared error of the digit as a number",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 50 rows of every class but one, but not where it is tested",
        "overfit": "60 rows, depth 10",
        "data_leak": "the label is one of the columns",
        "stalled": "hangs after 60 % of the rounds",
    },
)
