"""What XGBoost measured: names, values and collections of the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import Collection, CollectionKeys
from hook_layer.format.metric_names import is_known_to_fall
from hook_layer.format.modes import ModeKeys

__all__ = [
    "EvaluationLog",
    "collections_of",
    "evaluated_metrics",
    "newest_metrics",
    "num_evaluated_rounds",
]

EvaluationLog = Mapping[str, Mapping[str, list[Any]]]
"""All values of the metrics so far, by the name of the data and the name of the metric."""

_STANDARD_DEVIATION: Final = "std/"
_EACH_ROUND: Final = 100
_OF_METRICS: Final = (CollectionKeys.METRICS, CollectionKeys.LOSSES)


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


def collections_of(metric: str, grows: bool | None = None) -> tuple[str, ...]:
    """Return the collections of a metric, whatever the data is called.

    Args:
        metric: Its name without that of the data; empty for what is no metric.
        grows: Whether it is better the larger it is; None if the script does not say, then the name
            tells.
    """
    if not metric:
        return ()
    falls = is_known_to_fall(metric) if grows is None else not grows
    return _OF_METRICS if falls else _OF_METRICS[:1]


def evaluated_metrics(
    manager: CollectionManager, mode: ModeKeys, mode_step: int
) -> list[Collection]:
    """Return collections of metrics that ask for a round since it is an evaluation, too.

    These are those that are saved at other steps of evaluation by a word of their own: what is
    said to the hook as a whole is of steps whose mode the script sets. `metrics` come with
    `losses`, so that a round has what grows beside what falls. That is so for the first 100 rounds:
    in a long training of quick rounds more would cost more than the training.
    """
    if mode_step >= _EACH_ROUND:
        return []
    due = {each.name: each for each in manager.due(ModeKeys.EVAL, mode_step)}
    wanted = [name for name in _OF_METRICS if name in due and _has_own_steps(due[name], mode)]
    if CollectionKeys.LOSSES in wanted:
        wanted = list(_OF_METRICS)
    return [manager.get(name) for name in wanted]


def _has_own_steps(collection: Collection, mode: ModeKeys) -> bool:
    """Return whether a collection asks for other steps of evaluation than of a mode."""
    own = collection.save_config
    return own is not None and own.mode_save_configs[ModeKeys.EVAL] != own.mode_save_configs[mode]
