"""Compares the losses and metrics of two trials by their last values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hook_layer.format.known_collections import LOGGED, LOGGED_STEP
from rule_runtime.trial.trial import Trial

__all__ = ["FinalMetric", "MetricPair", "metric_pairs"]

_COLLECTIONS: Final = ("losses", "metrics", LOGGED)


@dataclass(frozen=True)
class FinalMetric:
    """A loss or metric of one run in one mode, the mean over ranks.

    Attributes:
        step: Step of the last value, counted in the mode.
        last: The last value.
        lowest: The lowest value that is a number; NaN if there is none.
        highest: The highest value that is a number; NaN if there is none.
    """

    step: int
    last: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class MetricPair:
    """A loss or metric of two runs; None if a run did not save it."""

    metric: str
    mode: str
    first: FinalMetric | None
    second: FinalMetric | None


def metric_pairs(
    first: Trial, second: Trial, *, regex: str | Sequence[str] | None = None
) -> list[MetricPair]:
    """Return the losses, metrics and logged scalars of two trials.

    Args:
        first: A trial.
        second: The other trial.
        regex: Regular expressions; a tensor's name must match at least one of them.

    Raises:
        ImportError: If pandas is not installed.
    """
    both = [_final_metrics(trial, regex) for trial in (first, second)]
    keys = dict.fromkeys((*both[0], *both[1]))
    return [MetricPair(*key, both[0].get(key), both[1].get(key)) for key in keys]


def _final_metrics(
    trial: Trial, regex: str | Sequence[str] | None
) -> dict[tuple[str, str], FinalMetric]:
    names: dict[str, None] = {}
    for collection in _COLLECTIONS:
        names |= dict.fromkeys(trial.select_tensors(regex, collection))
    chosen = [name for name in names if not name.startswith(LOGGED_STEP)]
    if not chosen:
        return {}
    table = trial.to_dataframe(regex=regex, statistics=["mean"])
    table = table[table["tensor"].isin(chosen)].sort_values("step")
    return {
        (str(tensor), str(mode)): _final(rows)
        for (tensor, mode), rows in table.groupby(["tensor", "mode"])
    }


def _final(rows: Any) -> FinalMetric:
    values = rows.groupby("mode_step")["mean"].mean()
    return FinalMetric(
        int(values.index[-1]), float(values.iloc[-1]), float(values.min()), float(values.max())
    )
