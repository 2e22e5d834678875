"""Boosted trees that answer what they are trained on worse than a constant does.

Nothing but a fault makes them: the first round alone is better, whatever the data are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.engine.outcome import IssueFound, Outcome, Passed
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.loss_rule import training_losses
from rule_runtime.facts.selection import evidence, finite_means
from rule_runtime.facts.slow_trees import OF_TREES
from rule_runtime.facts.tree_labels import (
    constants_of_metrics,
    has_skewed_objective,
    losses_of_others,
)
from rule_runtime.numerics.series_memory import MAX_SERIES, NumberSeries, Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["worse_trees"]

_ROUNDS: Final = 20
_ROUNDS_TO_GO: Final = 300
_WINDOW: Final = 10
_NUM_FIRST: Final = 3
_PATIENCE: Final = 3
_NO_BETTER: Final = 0.95
_OF_THE_MIDDLE: Final = ("rmse", "mae")
_REMEDY: Final = (
    "Check the objective, and what weighs classes or rows, as scale_pos_weight, which is for rare "
    "ones; and lower the learning rate eta."
)


def worse_trees(step: StepView, memory: Memory, max_ratio: float) -> Outcome | None:
    """Compare training losses of boosted trees with those of a constant; None if there are none.

    Those are compared whose labels tell what a constant gives: `logloss` of two classes that are
    both frequent, `mlogloss`, and `rmse` and `mae` of labels of more than 50 values. Where other
    data is measured, too, labels are of that: its losses must then be as bad.

    Args:
        step: The step.
        memory: `trees`: the first 3 and latest 10 of at most 32 losses; `others`, the smallest and
            the latest of the other data by at most 32 metrics; `round`, the first one; `skewed`,
            whether a quantile or expectile is asked for.
        max_ratio: Times the loss of the constant that a loss may be.
    """
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    of_trees = {
        names: at
        for names, at in training_losses(step, rows, means).items()
        if names[0].startswith(OF_TREES)
    }
    if of_trees:
        _keep_others(losses_of_others(step, rows, means), memory)
    known = _constants(step, of_trees, memory) if of_trees else {}
    limits = {names: max_ratio * constant for names, constant in known.items()}
    if not limits:
        return None
    rounds, bad = step.mode_step - memory.setdefault("round", step.mode_step), {}
    losses = SeriesMemory(memory.get("trees", {}), num_first=_NUM_FIRST, num_latest=_WINDOW)
    for names in losses.add({names: float(means[of_trees[names]]) for names in limits}):
        series = losses.of(names)
        now = float(np.median(series.latest))
        rise = now - float(series.first[0])
        is_bad = rounds >= _ROUNDS and _is_far_above(series, limits[names], rounds)
        is_bad = is_bad and _are_others_as_bad(memory, names, known[names], max_ratio, rise=rise)
        if losses.streak(names, is_bad=is_bad) >= _PATIENCE and is_bad:
            bad[names] = now
    memory["trees"] = losses.to_json()
    if not bad:
        return Passed()
    names = max(bad, key=lambda names: (bad[names] / limits[names], names))
    return IssueFound(
        evidence(
            step,
            rows,
            of_trees[names],
            measure="loss",
            value=bad[names],
            threshold=limits[names],
            message=f"is {bad[names]:.4g} after {rounds} rounds, more than {max_ratio:g} times "
            f"{limits[names] / max_ratio:.3g}, which the best constant answer gives",
            remedy=_REMEDY,
        )
    )


def _constants(step: StepView, names: Iterable[Series], memory: Memory) -> dict[Series, float]:
    """Return what a constant gives of those training losses for which that is known."""
    memory["skewed"] = memory.get("skewed", False) or has_skewed_objective(step)
    constants = constants_of_metrics(step)  # reads all labels
    if memory["skewed"]:
        constants = {metric: x for metric, x in constants.items() if metric not in _OF_THE_MIDDLE}
    known = {series: constants.get(series[0].removeprefix(OF_TREES), 0.0) for series in names}
    return {series: constant for series, constant in known.items() if constant > 0}


def _is_far_above(series: NumberSeries, limit: float, rounds: int) -> bool:
    """Return whether a loss is above a limit, and at its rate does not fall below in time."""
    start, now = float(series.first[0]), float(np.median(series.latest))
    if series.count < _WINDOW or now <= limit:
        return False
    fall = math.log(start / now) if start > now else 0.0
    return rounds * math.log(now / limit) > _ROUNDS_TO_GO * fall


def _keep_others(losses: Mapping[Series, float], memory: Memory) -> None:
    """Keep the smallest and the latest loss of other data."""
    kept: dict[str, list[float]] = memory.setdefault("others", {})
    for series, loss in losses.items():
        key = "\n".join(series)
        if key in kept or len(kept) < MAX_SERIES:
            smallest, _ = kept.get(key, (loss, loss))
            kept[key] = [min(smallest, loss), loss]


def _are_others_as_bad(
    memory: Memory, names: Series, constant: float, max_ratio: float, *, rise: float
) -> bool:
    """Return whether the data that the labels are of is answered as badly, and never was better.

    Labels of training may scatter more than those: then its losses are larger, and nothing is
    wrong. A training loss that rises is.
    """
    kept = memory["others"].get("\n".join((names[0].removeprefix(OF_TREES), names[1])))
    if kept is None:
        return True
    smallest, latest = kept
    is_never_better = rise > 0 or smallest > _NO_BETTER * constant
    return bool(latest > max_ratio * constant and is_never_better)
