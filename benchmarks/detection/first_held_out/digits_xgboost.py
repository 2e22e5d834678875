"""Boosted trees tell handwritten digits apart."""

from __future__ import annotations

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import digits
from benchmarks.detection.injecting import few, imbalanced_throughout, leaking, shuffled
from benchmarks.detection.program import Program, Run


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = few(digits(scaled=False), 500)
    tested_on, targets = data.valid_inputs, data.valid_targets
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced_throughout(digits(scaled=False), 40)
    if run.injects("data_leak"):
        data = leaking(data)
        tested_on = data.valid_inputs
    if run.injects("overfit"):
        data = few(data, 70)
    parameters = {
        "objective": "multi:softprob",
        "num_class": 10,
        "max_depth": 3,
        "eta": run.pick(0.3, lr_too_high=20.0, lr_too_low=1e-5),
    }
    if run.injects("wrong_loss"):
        parameters = {"objective": "reg:squarederror", "max_depth": 3, "eta": 0.3}
    predicted = boost(run, data, parameters, 40, tested_on)
    labels = predicted.round() if run.injects("wrong_loss") else predicted.argmax(1)
    return float((labels != targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, 10 classes, depth 3, 40 rounds",
    data="scikit-learn digits, 500 rows",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 20 in place of 0.3",
        "lr_too_low": "eta 1e-5 in place of 0.3",
        "wrong_loss": "squared error of the number of the class",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 40 rows of every class but one, but not where it is tested",
        "data_leak": "the label is one of the columns",
        "overfit": "70 rows",
        "stalled": "hangs after 60 % of the rounds",
    },
)
