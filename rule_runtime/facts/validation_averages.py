"""Whether validation is measured with averages of batch normalisation that are not right yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rule_runtime.facts.selection import declared

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["SETTLED_STEPS", "are_settling", "slow_averages"]

SETTLED_STEPS: Final = 500
"""Steps of training behind which such averages are right: 0.99 to the power of 500 is 0.7 %."""

_AVERAGES: Final = ("moving_mean", "moving_variance")
_SLOW: Final = "averages/"


def slow_averages(step: StepView) -> dict[str, float]:
    """Return what `ValidationRule.beside` keeps of a model of Keras with batch normalisation.

    Validation takes moving averages instead of those of the batch. In Keras each step moves them
    by 1 % (in PyTorch by 10 %): for some hundred steps a good model answers as one that has learned
    nothing.

    Args:
        step: A step, of a worker that says what its weights are.
    """
    weights = (name for names in declared(step, "weights").values() for name in names)
    return {_SLOW: 1.0} if any(of in name for name in weights for of in _AVERAGES) else {}


def are_settling(beside: Mapping[str, float], num_steps: int) -> bool:
    """Return whether a model has such averages, and they cannot be right yet.

    Args:
        beside: What is kept beside losses.
        num_steps: Steps of training since the first one with a loss.
    """
    return _SLOW in beside and num_steps < SETTLED_STEPS
