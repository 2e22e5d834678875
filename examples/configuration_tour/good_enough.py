"""A rule of one's own, in a file of its own: it ends a training that is good enough."""

from __future__ import annotations

from typing import Annotated

import stepwatch


class GoodEnough(stepwatch.Rule):
    """Finds a validation loss that is below a bound, so that no more money need be spent."""

    bound: Annotated[float, stepwatch.GreaterThan(0), stepwatch.Unit("units of the loss")] = 0.5

    def check(self, step: stepwatch.StepView, memory: stepwatch.Memory) -> stepwatch.Outcome:  # noqa: ARG002
        """Compare the largest loss of an evaluation with the bound."""
        if step.mode != stepwatch.ModeKeys.EVAL:
            return stepwatch.NotEvaluated("it is no evaluation")
        loss = step.tensors(collections="losses").largest("mean")
        if loss is None:
            return stepwatch.NotEvaluated("no loss was saved, or none is finite")
        if loss.value >= self.bound:
            return stepwatch.Passed()
        return stepwatch.IssueFound(
            f"{loss.name}: {loss.value:.4g} is below {self.bound:g}, which is good enough",
            measure="loss",
            value=loss.value,
            threshold=self.bound,
            remedy="Take the model as it is.",
        )
