"""Losses of targets that a script made up, as those of an adversarial training."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from rule_runtime.facts.loss_inputs import LossInputs

if TYPE_CHECKING:
    from rule_runtime.numerics.series_memory import Series
    from rule_runtime.trial.step_view import StepView

__all__ = ["of_made_up_targets"]

_MADE_UP: Final = (-1.0, 0.0, 1.0)
_FEWEST: Final = 16
"""Of fewer targets of a batch all are often the same by chance."""


def of_made_up_targets(step: StepView, losses: Collection[Series]) -> frozenset[Series]:
    """Return the losses of a step whose targets are all -1, all 0 or all 1.

    A script puts them in for "real" and "generated". No such loss must fall: its adversary learns,
    too. Beside one of them a loss of which no inputs are known is left out as well: the sum of two.

    Args:
        step: The step.
        losses: Names and workers of losses.
    """
    inputs = step.fact(LossInputs)
    found: list[Series] = []
    unknown: list[Series] = []
    for name, worker in losses:
        targets = inputs.of(name, worker, 1)
        if targets is None:
            unknown.append((name, worker))
        elif targets.size >= _FEWEST and targets.low == targets.high:
            found += [(name, worker)] if targets.low in _MADE_UP else []
    adversaries = {worker for _, worker in found}
    return frozenset(found) | {each for each in unknown if each[1] in adversaries}
