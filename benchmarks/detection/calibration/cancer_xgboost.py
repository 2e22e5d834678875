"""Gradient-boosted trees classify benign and malignant tumours."""

from __future__ import annotations

from benchmarks.detection.boosting import Predict, boost
from benchmarks.detection.data import table
from benchmarks.detection.injecting import imbalanced_throughout, leaking, with_fault
from benchmarks.detection.program import Run


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = table("breast_cancer", scaled=False)
    if run.injects("data_leak"):
        data = leaking(data)
    whole = data
    if run.injects("class_imbalance"):
        data = imbalanced_throughout(data, 50)
    else:
        data = with_fault(run, data)
    parameters = {
        "objective": "binary:logistic",
        "max_depth": 3,
        "eta": run.pick(0.2, lr_too_high=20.0, lr_too_low=1e-4),
        "lambda": run.pick(1.0, weight_decay=1e6),
    }

    def error(predict: Predict) -> float:
        is_one = predict(whole.valid_inputs) > 0.5  # noqa: PLR2004
        return float((is_one != whole.valid_targets.numpy()).mean())

    return boost(run, data, parameters, 60, error)
