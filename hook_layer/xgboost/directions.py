"""What a script says of its own metrics: whether they are better the larger they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xgboost.callback import EarlyStopping

from hook_layer.format.metric_names import FALLING_METRICS, GROWING_METRICS, is_built_in
from hook_layer.xgboost.evaluated_data import arguments_of_training

__all__ = ["collection_of_direction", "direction_of", "said_directions"]

_LAST: Final = ""
"""Stands for the last metric: what ends a training early looks at that one."""


def said_directions() -> dict[str, bool]:
    """Return what `maximize` says, of the training that calls this and of its `EarlyStopping`.

    Returns:
        By the name of a metric, "" for the last one, whether it grows.
    """
    known = arguments_of_training()
    found: dict[str, bool] = {}
    for callback in known.get("callbacks") or ():
        if isinstance(callback, EarlyStopping) and callback.maximize is not None:
            found[callback.metric_name or _LAST] = bool(callback.maximize)
    if known.get("maximize") is not None:
        found[_LAST] = bool(known["maximize"])
    return found


def direction_of(
    metric: str, evaluations: Mapping[str, Mapping[str, Any]], said: Mapping[str, bool]
) -> bool | None:
    """Return whether a metric of the script's own grows; None where the script does not say.

    Args:
        metric: Its name without that of the data.
        evaluations: All values so far, by the name of the data and the name of the metric.
        said: What `said_directions` returned.
    """
    if not said or not metric or is_built_in(metric):
        return None
    if metric in said:
        return said[metric]
    *_, last = list(evaluations.values())[-1]
    return said.get(_LAST) if metric == last else None


def collection_of_direction(grows: bool | None) -> str | None:
    """Return the collection for metrics with this direction; None if the script declares none."""
    if grows is None:
        return None
    return GROWING_METRICS if grows else FALLING_METRICS
