"""Boosted trees that answer what they are trained on worse than a constant does.

Nothing but a fault makes them: the first round alone is better, whatever the data are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.evaluation.constant_answers import constants_of_labels
from rule_runtime.evaluation.loss_rule import training_losses
from rule_runtime.evaluation.outcome import IssueFound, Outcome, Passed
from rule_runtime.evaluation.rule import Memory
from rule_runtime.evaluation.selection import evidence, finite_means
from rule_runtime.evaluation.slow_trees import OF_TREES
from rule_runtime.numerics.series_memory import Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["worse_trees"]

_ROUNDS: Final = 20
_ROUNDS_TO_GO: Final = 100
_WINDOW: Final = 10
_NUM_FIRST: Final = 3
_PATIENCE: Final = 3
_MOST_CLASSES: Final = 50
_OF_CLASSES: Final = ("logloss", "mlogloss")
_REMEDY: Final = (
    "Check the objective, and what weighs classes or rows, as scale_pos_weight, which is for rare "
    "ones; and lower the learning rate eta."
)


def worse_trees(step: StepView, memory: Memory, max_ratio: float) -> Outcome | None:
    """Compare training losses of boosted trees with those of a constant; None if there are none.

    Those are compared whose labels tell what a constant gives: `logloss` of two classes that are
    both frequent, `mlogloss`, and `rmse` and `mae` of labels of more than 50 values.

    Args:
        step: The step.
        memory: `trees`: the first 3 and latest 10 of at most 32 losses; `round`, the first one.
        max_ratio: Times the loss of the constant that a loss may be.
    """
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    of_trees = {
        names: at
        for names, at in training_losses(step, rows, means).items()
        if names[0].startswith(OF_TREES)
    }
    constants = _constants(step) if of_trees else {}  # reads all labels
    limits: dict[Series, float] = {}
    for name, worker in of_trees:
        constant = constants.get(name.removeprefix(OF_TREES), 0.0)
        if constant > 0:
            limits[name, worker] = max_ratio * constant
    if not limits:
        return None
    begin = memory.setdefault("round", step.mode_step)
    losses = SeriesMemory(memory.get("trees", {}), num_first=_NUM_FIRST, num_latest=_WINDOW)
    rounds, bad = step.mode_step - begin, {}
    for names in losses.add({names: float(means[of_trees[names]]) for names in limits}):
        series = losses.of(names)
        start, now = float(series.first[0]), float(np.median(series.latest))
        is_bad = rounds >= _ROUNDS and series.count >= _WINDOW and now > limits[names]
        if is_bad and start > now:
            is_bad = rounds * math.log(now / limits[names]) > _ROUNDS_TO_GO * math.log(start / now)
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
            told=f"is {bad[names]:.4g} after {rounds} rounds, more than {max_ratio:g} times "
            f"{limits[names] / max_ratio:.3g}, which the best constant answer gives",
            remedy=_REMEDY,
        )
    )


def _constants(step: StepView) -> dict[str, float]:
    """Return what a constant gives by the metrics that are compared."""
    found = {key.partition("/")[2]: value for key, value in constants_of_labels(step).items()}
    if not found:
        return {}
    # An objective of the script's own may return scores, which a metric takes for probabilities.
    labels = step.values(("labels",), step.workers[0])["labels"]
    if len(np.unique(labels)) > _MOST_CLASSES:
        return {metric: found[metric] for metric in found if metric not in _OF_CLASSES}
    predicted = step.tensors(regex=("^predictions$",))
    low, high = predicted.column("min"), predicted.column("max")
    are_shares = len(predicted) > 0 and low.min() >= 0 and high.max() <= 1
    return {metric: found[metric] for metric in _OF_CLASSES if metric in found and are_shares}
