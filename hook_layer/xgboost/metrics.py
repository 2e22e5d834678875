"""What XGBoost measured: names, values and collections of the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hook_layer.collections import CollectionKeys

__all__ = ["EvaluationLog", "collections_of", "newest_metrics", "num_evaluated_rounds"]

EvaluationLog = Mapping[str, Mapping[str, list[Any]]]
"""All values of the metrics so far, by the name of the data and the name of the metric."""

_GROWING_METRICS: Final = ("auc", "aucpr", "map", "ndcg", "pre")
_STANDARD_DEVIATION: Final = "std/"


def num_evaluated_rounds(evaluations: EvaluationLog) -> int:
    """Return how many rounds the metrics are of."""
    return max((len(v) for metrics in evaluations.values() for v in metrics.values()), default=0)


def newest_metrics(evaluations: EvaluationLog) -> Iterable[tuple[str, str, float]]:
    """Yield name, metric and value of what was measured last.

    Of several folds (`xgboost.cv`) it is the mean, and the standard deviation under `std/...`.
    """
    for data, metrics in evaluations.items():
        for metric, values in metrics.items():
            name, value = f"{data}-{metric}", values[-1]
            if isinstance(value, tuple):
                yield _STANDARD_DEVIATION + name, "", value[1]
                value = value[0]
            yield name, metric, value


def collections_of(metric: str) -> tuple[str, ...]:
    """Return the collections of a metric, whatever the data is called."""
    if not metric:
        return ()
    if metric.partition("@")[0] in _GROWING_METRICS:
        return (CollectionKeys.METRICS,)
    return (CollectionKeys.METRICS, CollectionKeys.LOSSES)
