"""Boosted trees read handwritten digits."""

from __future__ import annotations

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import digits
from benchmarks.detection.injecting import constant, imbalanced
from benchmarks.detection.program import Program, Run


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = digits(scaled=False)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    parameters = {
        "objective": "multi:softprob",
        "num_class": 10,
        "max_depth": 3,
        "eta": 0.2,
        "lambda": run.pick(1.0, weight_decay=1e7),
    }
    predicted = boost(run, data, parameters, 40)
    return float((predicted.argmax(1) != data.valid_targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, ten classes, depth 3, 40 rounds",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "labels_constant": "all training labels are that of the first row",
        "class_imbalance": "one in 40 of every digit but 0, in training alone",
        "weight_decay": "lambda 1e7 instead of 1",
    },
)
