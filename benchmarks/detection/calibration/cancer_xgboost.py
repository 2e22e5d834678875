"""Boosted trees tell benign from malignant tumours."""

from __future__ import annotations

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import table
from benchmarks.detection.injecting import constant, imbalanced_throughout, leaking, shuffled
from benchmarks.detection.program import Program, Run


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = table("breast_cancer", scaled=False)
    tested_on, targets = data.valid_inputs, data.valid_targets
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced_throughout(data, 50)
    if run.injects("data_leak"):
        data = leaking(data)
        tested_on = data.valid_inputs
    parameters = {
        "objective": "binary:logistic",
        "max_depth": 3,
        "eta": run.pick(0.2, lr_too_high=20.0, lr_too_low=1e-4),
        "lambda": run.pick(1.0, weight_decay=1e6),
    }
    predicted = boost(run, data, parameters, 60, tested_on)
    return float(((predicted > 0.5) != targets.numpy()).mean())  # noqa: PLR2004


PROGRAM = Program(
    model="XGBoost, binary, depth 3, 60 rounds",
    data="scikit-learn breast_cancer",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 20 in place of 0.2",
        "lr_too_low": "eta 1e-4 in place of 0.2",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are that of the first row",
        "weight_decay": "lambda 1e6 instead of 1",
        "class_imbalance": "one in 50 rows of one of the two classes, but not where it is tested",
        "data_leak": "the label is one of the columns",
    },
)
