"""Which of the data that XGBoost measures is the data that it trains on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Final

__all__ = ["collection_of_metric", "evaluated_data"]

_TRAINING_METRICS: Final = "training_metrics"
"""The collection of metrics of the data that is trained on, whatever it is called."""
_VALIDATION_METRICS: Final = "validation_metrics"
"""The collection of metrics of other data."""


def evaluated_data() -> dict[str, bool]:
    """Return the names in `evals` of the `xgboost.train` that calls this, and what is trained on.

    A callback is told the names alone, and scikit-learn's interface calls all data
    `validation_0`, `validation_1`, ...; so the arguments are looked up where they are.

    Returns:
        For each name whether it is the very object that is trained on; empty where nobody knows.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way to it
    while frame is not None and frame.f_globals.get("__name__") != "xgboost.training":
        frame = frame.f_back
    known = {} if frame is None else frame.f_locals
    if not {"dtrain", "evals"} <= known.keys():
        return {}
    return {name: data is known["dtrain"] for data, name in known["evals"]}


def collection_of_metric(name: str, evaluated: Mapping[str, bool]) -> str | None:
    """Return which of the two collections a metric belongs to; None where nobody knows.

    Args:
        name: Name of the tensor, as `validation_0-logloss`.
        evaluated: What `evaluated_data` returned.
    """
    is_trained_on = evaluated.get(name.partition("-")[0])
    if is_trained_on is None:
        return None
    return _TRAINING_METRICS if is_trained_on else _VALIDATION_METRICS
