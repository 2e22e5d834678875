"""Boosted trees give colours the names that people give them."""

from __future__ import annotations

from typing import Any

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split, colours
from benchmarks.detection.injecting import (
    constant,
    imbalanced_throughout,
    leaking,
    shuffled,
)
from benchmarks.detection.program import Program, Run


def _data(run: Run) -> Split:
    data = colours(scaled=False)
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced_throughout(data, 30)
    return leaking(data) if run.injects("data_leak") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = _data(run)
    healthy = colours(scaled=False)
    tested_on = data.valid_inputs if run.injects("data_leak") else healthy.valid_inputs
    parameters: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": 9,
        "max_depth": 4,
        "min_child_weight": 2,
        "eta": run.pick(0.1, lr_too_high=15.0),
    }
    if run.injects("wrong_loss"):
        parameters |= {"objective": "reg:squarederror"}
        del parameters["num_class"]
    predicted = boost(run, data, parameters, 40, tested_on)
    labels = predicted.round() if run.injects("wrong_loss") else predicted.argmax(1)
    return float((labels != healthy.valid_targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, 9 classes, depth 4, 40 rounds",
    data="colours of the xkcd survey that come with matplotlib, 9 words",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 15 in place of 0.1",
        "wrong_loss": "squared error of the number of the class",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 30 rows of all classes but one, but not where it is tested",
        "data_leak": "the label is one of the columns",
    },
)
