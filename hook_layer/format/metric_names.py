"""Decides by name which metrics of gradient-boosted trees decrease during training.

XGBoost does not report whether smaller or larger values of a metric are better. Mistaking a score
for a loss would cause false findings. So a loss is a known decreasing metric of XGBoost, or a name
with only words for losses and neutral words, such as `my_log_loss`, `val_wmape@10` or `PyRMSLE`.
Other words can reverse the direction or the meaning, as in `neg_rmse`, `pct_within_error` and
`profit_and_loss`; so can a leading number, as in `1-error`. Their direction is unknown.
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
"""Collection of custom metrics that the script declares with `maximize=False`."""
GROWING_METRICS: Final = "growing_metrics"
"""Collection of custom metrics that the script declares with `maximize=True`."""

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
_LONGEST: Final = 64
_LOSS_WORDS: Final = (
    r"loss(?:es)?|errors?|errs?|deviance|nll|nloglik|neg(?:ative)?_?log_?lik(?:elihood)?"
    r"|[nrw]?mse|nrmse|wrmse|r?msle|[nw]?mae|s?mape|w?ape|wmape|mphe|mspe|rmspe|mase|rmsse|rr?[as]e"
    r"|med(?:ian)?ap?e|mdap?e|s[sa]e|huber|log_?cosh|pinball|crps|winkler"
    r"|mlogloss|merror|cross_?entropy|bce|brier(?:_?score)?|hinge|focal|misclass(?:ification|ified)?"
    r"|coverage_error"  # Label ranking error; larger values of plain `coverage` are better.
)
_NEUTRAL_WORDS: Final = (
    # Owner and data set.
    r"my|own|custom(?:i[sz]ed)?|user|new|py(?:thon)?|numpy|np|torch|xgb(?:oost)?|sk(?:learn)?"
    r"|f?eval(?:uation)?|valid(?:ation)?|val|train(?:ing)?|test(?:ing)?|dev|hold|out|oof|oob|cv|fold"
    r"|data|set|overall|global|func(?:tion)?|fn|metric"
    # Measurement and averaging.
    r"|mean|average|avg|median|sum|total|max(?:imum)?|min(?:imum)?|g(?:eometric_?)?mean|rate|of|at"
    r"|top|[pq](?=\d)|(?:un)?weighted|balanced|macro|micro|rel(?:ative)?|perc(?:ent(?:age)?)?|pct"
    r"|root|squared?|squares|sq|abs(?:olute)?|log(?:arithmic)?|scaled|normali[sz]ed|norm|clipped"
    r"|capped|trimmed|smooth(?:ed)?|raw|residual|a?symmetric|asym(?!metric)|exponential|least|l[12]"
    # Measured quantity.
    r"|poisson|gamma|tweedie|cox|aft|survival|quantile|expectile|hamming|logistic|softmax|sigmoid"
    r"|with_?logits|binary|multi(?:class)?|categorical|sparse|zero_?one|class(?:es|ification)?"
    r"|reg(?:ression)?|pred(?:iction|icted)?|forecast|label|rank(?:ing)?"
)


def _pattern() -> re.Pattern[str]:
    """Return the pattern of lower-case names that consist only of these words."""
    between = r"[_ .@-]?"
    # A number followed by a minus is not a threshold: `my_1-rmse`.
    number = rf"(?:{between}\d+(?:\.\d+)?(?!-))?"
    words = (each.replace("_?", between) for each in (_LOSS_WORDS, _NEUTRAL_WORDS))
    loss, neutral = (f"(?:{each}){number}" for each in words)
    return re.compile(f"(?:{neutral}{between})*{loss}(?:{between}(?:{loss}|{neutral}))*")


_KNOWN_TO_FALL: Final = _pattern()


def is_built_in(metric: str) -> bool:
    """Return whether a metric, such as `error@0.7`, is built into XGBoost."""
    return _base(metric) in _FALLING or is_known_to_grow(metric)


def is_known_to_grow(metric: str) -> bool:
    """Return whether a metric of XGBoost, such as `ndcg@2-`, increases during training."""
    return _base(metric) in _GROWING


def is_known_to_fall(metric: str) -> bool:
    """Return whether a metric is known to decrease during training."""
    if _base(metric) in _FALLING:
        return True
    # Names come from files; a long one could match in very many ways.
    return len(metric) <= _LONGEST and _KNOWN_TO_FALL.fullmatch(metric.lower()) is not None


def _base(metric: str) -> str:
    """Return the name without its parameter, and without the sign after a ranking metric."""
    return metric.partition("@")[0].removesuffix("-")
