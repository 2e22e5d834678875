"""Which metrics of boosted trees fall while a model learns, told by their names.

XGBoost says of no metric whether it is better the smaller or the larger it is. A loss that is taken
for a score is not judged; a score that is taken for a loss is accused of growing. So only names
that are known to fall are losses: those of XGBoost's own, and of a script's own those that say so,
as `my_log_loss`, `wmape` or `PyRMSLE`, but not `neg_rmse` or `d2_absolute_error_score`.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "FALLING_METRICS",
    "GROWING_METRICS",
    "is_built_in",
    "is_known_to_fall",
    "is_known_to_grow",
]

FALLING_METRICS: Final = "falling_metrics"
"""The collection of a script's own metrics of which it says `maximize=False`."""
GROWING_METRICS: Final = "growing_metrics"
"""The collection of a script's own metrics of which it says `maximize=True`."""

_FALLING: Final = frozenset(
    {
        "rmse", "rmsle", "mae", "mape", "mphe", "logloss", "error", "merror", "mlogloss",
        "quantile", "expectile", "poisson-nloglik", "gamma-nloglik", "gamma-deviance",
        "tweedie-nloglik", "cox-nloglik", "aft-nloglik",
    }
)  # fmt: skip
_GROWING: Final = frozenset(
    {"auc", "aucpr", "map", "ndcg", "pre", "ams", "interval-regression-accuracy"}
)
_WORD: Final = re.compile(r"(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+)\d*")
_LOSS: Final = re.compile(
    r".*(?:loss|errors?|err|mse|msle|mae|mape|mspe|mphe|mase|deviance|nll|nloglik)\d*"
    r"|(?:brier|pinball|huber|hinge|crossentropy)\d*"
)
_CROSS_ENTROPY: Final = "cross_entropy"
_LIKELIHOOD: Final = re.compile(r"(?:^|_)neg(?:ative)?_?log_?lik")
"""Less of it is better, though a negative word stands in front."""
_TURNED: Final = re.compile(
    r"neg.*|minus|inv|inverse|d2|skill|gains?|improvements?|reductions?|saved|avoided|explained"
)


def is_built_in(metric: str) -> bool:
    """Tell whether a metric is one of XGBoost's own.

    Args:
        metric: Its name without that of the data, as `error@0.7`.
    """
    return _base(metric) in _FALLING or is_known_to_grow(metric)


def is_known_to_grow(metric: str) -> bool:
    """Tell whether a metric is one of XGBoost's own that are better the larger they are.

    Args:
        metric: Its name without that of the data, as `ndcg@2-`.
    """
    return _base(metric) in _GROWING


def is_known_to_fall(metric: str) -> bool:
    """Tell whether a metric is known to fall while a model learns.

    Args:
        metric: Its name without that of the data.
    """
    if _base(metric) in _FALLING:
        return True
    if metric.startswith("-"):
        return False
    words = [word.lower() for word in _WORD.findall(metric)]
    text = "_".join(words)
    if _LIKELIHOOD.search(text):
        return True
    if any(_TURNED.fullmatch(word) for word in words):
        return False
    return _CROSS_ENTROPY in text or any(_LOSS.fullmatch(word) for word in words)


def _base(metric: str) -> str:
    """Return the name without its parameter, and without the sign behind a ranking's."""
    return metric.partition("@")[0].removesuffix("-")
