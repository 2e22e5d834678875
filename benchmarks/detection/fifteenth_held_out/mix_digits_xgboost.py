"""Boosted trees tell handwritten digits apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, imbalanced_throughout, leaking, shuffled
from benchmarks.detection.program import Program, Run

CLASSES, ROUNDS = 10, 60


def _halves(pixels: Tensor) -> Tensor:
    """Return the means of pixels two by two, [B, 16] of [B, 64], and the pixels, [B, 80]."""
    means = torch.nn.functional.avg_pool2d(pixels.view(-1, 1, 8, 8), 2).flatten(1)
    return torch.cat([means, pixels], 1)


def _data(run: Run) -> Split:
    """Return pixels and means of pixels [B, 80], and numbers [B]."""
    data = digits(scaled=False)
    data = data._replace(inputs=_halves(data.inputs), valid_inputs=_halves(data.valid_inputs))
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced_throughout(data, 50)
    return few(data, 30) if run.injects("overfit") else data


def _doubt(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean probability that is not given to the right class.

    Args:
        predicted: Probabilities [B, classes], or numbers of classes [B].
        labels: Right classes [B].
    """
    if predicted.ndim == 1:
        predicted = np.eye(CLASSES)[np.clip(predicted.round(), 0, CLASSES - 1).astype(int)]
    return float(1 - predicted[np.arange(len(labels)), labels].mean())


def train(run: Run) -> float:
    """Train once; return the mean probability that is not given to the right class."""
    data = _data(run)
    full = digits(scaled=False)
    tested_on = data.valid_inputs if run.injects("data_leak") else _halves(full.valid_inputs)
    parameters: dict[str, object] = {
        "objective": run.pick("multi:softprob", wrong_loss="reg:squarederror"),
        "max_depth": run.pick(3, overfit=10),
        "min_child_weight": run.pick(1.0, overfit=0.0),
        "lambda": run.pick(1.0, overfit=0.0),
        "subsample": run.pick(0.8, overfit=1.0),
        "colsample_bytree": run.pick(0.5, overfit=1.0),
        "eta": run.pick(0.15, lr_too_high=30.0, lr_too_low=1e-4),
    }
    if not run.injects("wrong_loss"):
        parameters["num_class"] = CLASSES
    predicted = boost(run, data, parameters, ROUNDS, tested_on)
    return _doubt(predicted, full.valid_targets.numpy())


PROGRAM = Program(
    model="XGBoost, ten classes, depth 3, 60 rounds",
    data="scikit-learn digits, pixels and means of four",
    measure="mean probability not given to the right class",
    train=train,
    faults={
        "lr_too_high": "eta 30 in place of 0.15",
        "lr_too_low": "eta 1e-4 in place of 0.15",
        "wrong_loss": "squared error from the number of the class, in place of ten classes",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are that of the first row",
        "class_imbalance": "one in 50 rows of nine classes, but not where it is tested",
        "data_leak": "the label is one of the columns",
        "overfit": "30 rows, depth 10, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
