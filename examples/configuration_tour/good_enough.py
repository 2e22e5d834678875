"""A rule of one's own, in a file of its own: it ends a training that is good enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime import Rule
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import GreaterThan, Memory, Unit
from rule_runtime.evaluation.selection import evidence, finite_means, worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView


class GoodEnough(Rule):
    """Finds a validation loss that is below a bound, so that no more money need be spent."""

    bound: Annotated[float, GreaterThan(0), Unit("units of the loss")] = 0.5

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the largest loss of an evaluation with the bound."""
        if step.mode != ModeKeys.EVAL:
            return NotEvaluated("it is no evaluation")
        rows = step.tensors(collections=("losses",))
        losses = finite_means(rows)
        if not np.isfinite(losses).any():
            return NotEvaluated("no loss was saved, or none is finite")
        at = worst(rows, losses, largest=True)
        if losses[at] >= self.bound:
            return Passed()
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="loss",
                value=losses[at],
                threshold=self.bound,
                told=f"{losses[at]:.4g} is below {self.bound:g}, which is good enough",
                remedy="Take the model as it is.",
            )
        )
