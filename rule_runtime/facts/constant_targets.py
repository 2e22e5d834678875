"""Losses whose targets are all the same, as those of an adversarial or contrastive training."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from rule_runtime.facts.loss_inputs import LossInputs

if TYPE_CHECKING:
    from rule_runtime.numerics.series_memory import Series
    from rule_runtime.trial.step_view import StepView

__all__ = ["with_constant_targets"]

_MADE_UP: Final = (-1.0, 0.0, 1.0)
"""Targets that scripts use for "generated" and "real", or for the place of the right candidate."""

_FEWEST: Final = 16
"""Targets of a batch; fewer are often the same by chance."""


def with_constant_targets(step: StepView, losses: Collection[Series]) -> frozenset[Series]:
    """Return the losses of a step whose targets are all -1, all 0 or all 1.

    Such a loss need not fall: its adversary learns, too, or the candidates become harder. Beside
    one of them a loss of which no inputs are known is returned as well: the sum of two.

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
    workers = {worker for _, worker in found}
    return frozenset(found) | {each for each in unknown if each[1] in workers}
