"""Which of the data that XGBoost measures is the data that it trains on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, Final

from hook_layer.xgboost.same_rows import SameRows

__all__ = [
    "arguments_of_training",
    "collection_of_metric",
    "data_to_predict",
    "evaluated_data",
    "trained_on",
]

_TRAINING_METRICS: Final = "training_metrics"
"""The collection of metrics of the data that is trained on, whatever it is called."""
_VALIDATION_METRICS: Final = "validation_metrics"
"""The collection of metrics of other data."""
_OF_TRAINING: Final = re.compile(r"d?train(ing)?([_ ]?(set|data|\d{1,4}))?", re.IGNORECASE)


def arguments_of_training() -> Mapping[str, Any]:
    """Return the arguments of the `xgboost.train` or `xgboost.cv` that calls this; empty if none.

    XGBoost does not pass them to a callback, so they are looked up.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way to it
    while frame is not None and frame.f_globals.get("__name__") != "xgboost.training":
        frame = frame.f_back
    return {} if frame is None else frame.f_locals


def evaluated_data() -> dict[str, bool]:
    """Return the names in `evals` of the `xgboost.train` that calls this, and what is trained on.

    XGBoost passes only the names to a callback, and scikit-learn's interface calls all data
    `validation_0`, `validation_1`, ....

    Returns:
        For each name whether it is what is trained on, by `trained_on`; empty where nobody knows.
    """
    known = arguments_of_training()
    if not {"dtrain", "evals"} <= known.keys():
        return {}
    evals = list(known["evals"])
    is_training = trained_on(known["dtrain"], evals)
    return {name: of for (_, name), of in zip(evals, is_training, strict=True)}


def trained_on(data: Any, evals: Iterable[tuple[Any, str]]) -> list[bool]:
    """Return which of measured data is what is trained on.

    It is the same object, or one of the same rows: a `QuantileDMatrix` is often measured by a
    `DMatrix`. If none is, it is that whose name says so, such as a part of the training data.
    """
    evals, same = list(evals), SameRows(data)
    found = [each is data or same.are_in(each) for each, _ in evals]
    if any(found):
        return found
    return [_OF_TRAINING.fullmatch(str(name)) is not None for _, name in evals]


def data_to_predict(data: Any, evals: Iterable[tuple[Any, str]]) -> Any:
    """Return the last measured data that is not trained on, or else the last; None if none is."""
    evals = list(evals)
    is_training = trained_on(data, evals)
    measured = [each for each, _ in evals]
    others = [each for each, of in zip(measured, is_training, strict=True) if not of]
    return (others or measured or [None])[-1]


def collection_of_metric(name: str, evaluated: Mapping[str, bool]) -> str | None:
    """Return which of the two collections a metric belongs to; None where nobody knows."""
    of = max((data for data in evaluated if name.startswith(f"{data}-")), key=len, default=None)
    if of is None:
        return None
    return _TRAINING_METRICS if evaluated[of] else _VALIDATION_METRICS
