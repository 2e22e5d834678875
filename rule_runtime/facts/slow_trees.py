"""Boosted trees of which each adds next to nothing, told by how their training losses fall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.evaluation_phases import is_share_of_errors
from rule_runtime.facts.loss_rule import training_losses
from rule_runtime.facts.selection import evidence, finite_means, worst
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["OF_TREES", "slow_trees"]

OF_TREES: Final = "train-"
"""What names of the training losses of boosted trees begin with."""

_ROUNDS: Final = 20
_FALL_OF_TREES: Final = 1e-3
_FALL_AT_LOW_ETA: Final = 0.02
_LOW_ETA: Final = 1e-3
_STEADY: Final = 0.8
_ETA: Final = "^hyperparameters/(eta|learning_rate)$"


def slow_trees(step: StepView, memory: Memory, remedy: str) -> Outcome:
    """Judge the training losses of boosted trees by how far they fell.

    Args:
        step: The step.
        memory: `rounds`: round and loss at the beginning and in the middle, of at most 32 losses.
        remedy: What to try first.
    """
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    seen: dict[str, list[float]] = memory.setdefault("rounds", {})
    falls = {}
    for (name, worker), at in sorted(training_losses(step, rows, means).items()):
        key, now = f"{worker}/{name}", float(means[at])
        if not name.startswith(OF_TREES) or is_share_of_errors(name):
            continue
        if key not in seen and len(seen) >= MAX_SERIES:
            continue
        begin, start, *middle = seen.setdefault(key, [step.mode_step, now])
        if step.mode_step - begin < _ROUNDS / 2:
            continue
        if not middle:
            seen[key] += [step.mode_step, now]
        elif step.mode_step - begin >= _ROUNDS and step.mode_step - middle[0] >= _ROUNDS / 2:
            before = (start - middle[1]) / (middle[0] - begin)
            since = (middle[1] - now) / (step.mode_step - middle[0])
            share = (start - now) / abs(start) if start else 1.0
            falls[at] = (share, before > 0 and since >= _STEADY * before)
    if not falls:
        return NotEvaluated(f"{_ROUNDS} rounds of boosting are needed")
    least = _FALL_OF_TREES if _eta(step) >= _LOW_ETA else _FALL_AT_LOW_ETA
    if not all(share < least and is_steady for share, is_steady in falls.values()):
        return Passed()
    at = worst(
        rows, np.array([falls.get(at, (np.nan,))[0] for at in range(len(rows))]), largest=True
    )
    return IssueFound(
        evidence(
            step,
            rows,
            at,
            measure="loss_fall",
            value=falls[at][0],
            threshold=least,
            message=f"fell steadily, and by {100 * falls[at][0]:.3g} % in {_ROUNDS} rounds or "
            f"more, less than {100 * least:g} %",
            remedy=remedy,
        )
    )


def _eta(step: StepView) -> float:
    """Return the learning rate of boosted trees; infinite where it was not saved."""
    rates = finite_means(step.tensors(regex=(_ETA,)))
    return float(np.nanmin(rates)) if np.isfinite(rates).any() else np.inf
