"""Gradient-boosted trees read handwritten digits."""

from __future__ import annotations

from benchmarks.detection.boosting import Predict, boost
from benchmarks.detection.data import digits
from benchmarks.detection.injecting import with_fault
from benchmarks.detection.program import Run


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = with_fault(run, digits(scaled=False), one_in=40)
    parameters = {
        "objective": "multi:softprob",
        "num_class": 10,
        "max_depth": 3,
        "eta": 0.2,
        "lambda": run.pick(1.0, weight_decay=1e7),
    }

    def error(predict: Predict) -> float:
        found = predict(data.valid_inputs).argmax(1)
        return float((found != data.valid_targets.numpy()).mean())

    return boost(run, data, parameters, 40, error)
