"""InitialLossMismatch: a first loss that no untrained model should have."""

from __future__ import annotations

import math
import re
from typing import Annotated, Final

from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.input_scales import has_large_inputs, issue_or_advice
from rule_runtime.facts.losses import Loss, Losses, LossKind
from rule_runtime.numerics.loss_pair import TOLERANCE
from rule_runtime.trial.step_view import StepView

__all__ = ["InitialLossMismatch"]

_NEVER_NEGATIVE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE(WithLogits)?|MSE|L1|SmoothL1|Huber|CTC|KLDiv)Loss_output"
)
_TIMES_UNSURE: Final = 2.0
"""Multiple of `max_ratio` for losses that only look like a cross entropy."""


class InitialLossMismatch(Rule):
    """Detects first losses that do not fit an untrained model.

    How it decides:
        The rule compares the loss at the first training step with the loss of outputs that are all
        0, such as ln(classes) for a cross entropy. It reports:
        * a first loss more than `max_ratio` times as large, unless it is a sum or was scaled. This
          is advice for regressions whose inputs are not scaled;
        * a loss below 0 that cannot be negative, at the first `num_points` saved steps;
        * an only loss that begins at exactly 0, although its outputs and targets differ.

    Parameters:
        max_ratio: Times the loss of outputs that are all 0.
        num_points: First saved losses that must not be negative.

    What to try:
        Check that the loss fits the outputs and targets (logits or probabilities, log_softmax
        before NLLLoss), scale inputs and targets, and initialise the last layer with small weights.
    """

    max_ratio: Annotated[float, GreaterThan(1), Unit("times the loss of zero outputs")] = 3.0
    num_points: Annotated[int, AtLeast(1), Unit("saved steps")] = 20

    collections = saved_every(10, "losses", "loss_inputs", "gradients")
    only_training = "a step of mode {} has no training loss"

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the first losses.

        Memory: `seen`: number of steps with a loss.
        """
        seen = memory.get("seen", 0)
        if seen >= self.num_points:
            return NotApplicable(f"only the first {self.num_points} losses are evaluated")
        losses = [loss for loss in step.fact(Losses).losses if math.isfinite(loss.value)]
        if not losses or not len(step.tensors(collections=("gradients",))):
            raise Missing("no finite loss with gradients was saved: save both at step 0")
        memory["seen"] = seen + 1
        is_first = not seen and step.mode_step == 0
        is_only = len({loss.name for loss in losses}) == 1
        for loss in losses:
            message = ""
            if loss.value < -TOLERANCE and _NEVER_NEGATIVE.match(loss.name):
                message = f"is {loss.value:.4g} at step {step.step}, and this loss is never below 0"
            elif is_first and is_only and _compares_nothing(loss):
                message = "begins at exactly 0, although outputs and targets differ"
            if message:
                return self._found(step, loss, ("impossible_loss", 0.0), message)
        judged = [
            loss
            for loss in losses
            if math.isfinite(loss.largest_mean + loss.zero_output_loss)
            or (_NEVER_NEGATIVE.match(loss.name) and not is_first)
        ]
        if not judged:
            raise Missing(
                "the outputs and targets of the first loss are unknown", advice_of(step).loss_inputs
            )
        large = [of for of in judged if is_first and self._limit(of) < of.value <= of.largest_mean]
        if not large:
            return Passed()
        worst = max(large, key=lambda loss: loss.value / self._limit(loss))
        limit, zero = self._limit(worst), worst.zero_output_loss
        message = f"begins at {worst.value:.4g}, more than {limit / zero:g} times {zero:.3g}, the "
        message += "loss of outputs that are all 0"
        found = self._found(step, worst, ("initial_loss", limit), message)
        return issue_or_advice(step, found) if has_large_inputs(step) else found

    def _limit(self, loss: Loss) -> float:
        """Return the largest normal first loss; NaN if unknown."""
        is_sure = loss.kind is not LossKind.LOOKS_LIKE_CLASSES
        return self.max_ratio * loss.zero_output_loss * (1 if is_sure else _TIMES_UNSURE)

    def _found(
        self, step: StepView, loss: Loss, limit: tuple[str, float], message: str
    ) -> IssueFound:
        row, (measure, threshold) = (step.fact(Losses).rows, loss.row), limit
        return finding(self, step, row, (measure, loss.value, threshold), message)


def _compares_nothing(loss: Loss) -> bool:
    """Return whether a loss is exactly 0 although its outputs and targets differ."""
    outputs, targets = loss.outputs, loss.targets
    if loss.value != 0 or outputs is None or targets is None:
        return False
    return outputs.low < outputs.high and (outputs.low, outputs.high) != (targets.low, targets.high)
