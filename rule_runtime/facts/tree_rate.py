"""The learning rate of gradient-boosted trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.framework import Framework, framework_of
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["tree_rate"]

_RATE: Final = r"^hyperparameters/(eta|learning_rate)$"


def tree_rate(step: StepView) -> tuple[str, float] | None:
    """Return name and value of the learning rate of boosted trees; a fact.

    Returns:
        None if the run trains other models.

    Raises:
        Missing: The rate was not saved.
    """
    if framework_of(step) is not Framework.XGBOOST:
        return None
    rows = step.tensors(regex=(_RATE,))
    if not len(rows):
        raise Missing("no learning rate of the boosted trees was saved")
    return rows.names[0], float(finite_means(rows)[0])
