"""Boosted trees each of which adds next to nothing, by how their training losses fall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.loss_curves import TrainingLosses
from rule_runtime.facts.loss_sides import is_share_of_errors
from rule_runtime.facts.selection import evidence, finite_means
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["OF_TREES", "slow_trees"]

OF_TREES: Final = "train-"
"""Prefix of the names of the training losses of boosted trees."""

_ROUNDS: Final = 20
"""Boosting rounds after which the fall is judged."""

_LEAST_FALL: Final = 1e-3
"""Share by which a loss falls in 20 rounds even at a rate of 0.001 with little to learn."""

_LEAST_FALL_AT_LOW_RATE: Final = 0.02
"""The same where the rate is known and is below 0.001, which nobody chooses."""

_LOW_RATE: Final = 1e-3
_RATE: Final = "^hyperparameters/(eta|learning_rate)$"

_STEADY: Final = 0.8
"""The second half of the rounds falls by at least this share of the first: there is more to learn.
Where there is little to learn, the first trees learn it."""


def slow_trees(step: StepView, memory: Memory, remedy: str) -> Outcome:
    """Judge the training losses of boosted trees by how little and how steadily they fell.

    Args:
        step: The step.
        memory: `rounds`: round and loss at the beginning and in the middle, of at most 32 losses.
        remedy: What to try first.
    """
    losses = step.fact(TrainingLosses)
    seen: dict[str, list[float]] = memory.setdefault("rounds", {})
    falls = {}
    for (name, worker), at in sorted(losses.at.items()):
        key = f"{worker}/{name}"
        if name.startswith(OF_TREES) and (key in seen or len(seen) < MAX_SERIES):
            fall = _fall(step.mode_step, losses.values[name, worker], seen.setdefault(key, []))
            # Counts of errors move in jumps.
            if fall is not None and not is_share_of_errors(name):
                falls[at] = fall
    if not falls:
        return NotEvaluated(f"{_ROUNDS} rounds of boosting are needed")
    rates = finite_means(step.tensors(regex=(_RATE,)))
    is_low = np.isfinite(rates).any() and np.nanmin(rates) < _LOW_RATE
    least = _LEAST_FALL_AT_LOW_RATE if is_low else _LEAST_FALL
    if not all(share < least and is_steady for share, is_steady in falls.values()):
        return Passed()
    at, (share, _) = max(falls.items(), key=lambda item: item[1])
    return IssueFound(
        evidence(
            step,
            losses.rows,
            at,
            measure="loss_fall",
            value=share,
            threshold=least,
            message=f"fell steadily, and by {100 * share:.3g} % in {_ROUNDS} rounds or more, less "
            f"than {100 * least:g} %",
            remedy=remedy,
        )
    )


def _fall(number: int, loss: float, rounds: list[float]) -> tuple[float, bool] | None:
    """Return the fall of a loss in parts of itself, and whether it is steady.

    Args:
        number: Number of the round.
        loss: The loss.
        rounds: Round and loss at the beginning and in the middle; added to.
    """
    if not rounds or (len(rounds) == 2 and number - rounds[0] >= _ROUNDS / 2):  # noqa: PLR2004
        rounds += [number, loss]
        return None
    if len(rounds) == 2 or number - rounds[0] < _ROUNDS:  # noqa: PLR2004
        return None
    begin, start, middle, between = rounds
    if number - middle < _ROUNDS / 2:
        return None
    before, since = (start - between) / (middle - begin), (between - loss) / (number - middle)
    share = (start - loss) / abs(start) if start else 1.0
    return share, before > 0 and since >= _STEADY * before
