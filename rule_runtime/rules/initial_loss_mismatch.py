"""InitialLossMismatch: a first loss that no untrained model should have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import (
    IssueFound,
    Missing,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.loss import Loss, LossFacts
from rule_runtime.facts.loss_inputs import LOSS_INPUTS, LossKind
from rule_runtime.facts.missing import how_to_save_loss_inputs
from rule_runtime.facts.selection import evidence, is_training

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["InitialLossMismatch"]

_NEVER_NEGATIVE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE(WithLogits)?|MSE|L1|SmoothL1|Huber|CTC|KLDiv)Loss_output"
)
_TIMES_UNSURE: Final = 2.0
"""Times `max_ratio` for losses that are cross entropies by their inputs only."""
_NEGATIVE: Final = -1e-4
"""Losses above it may be below 0 by rounding."""
_REMEDY: Final = (
    "Check that the loss fits the outputs and targets (logits or probabilities, log_softmax before "
    "NLLLoss, sum or mean over the batch), scale inputs and targets, and initialise the last layer "
    "with small weights."
)


class InitialLossMismatch(Rule):
    """Finds first losses that do not fit an untrained model.

    How it decides:
        The loss at the first training step is compared with that of a model that knows nothing:
        ln(classes) for a cross entropy, ln 2 for a binary one, and the mean square of the targets,
        or its root, but at least 1, for a regression. It fires if the loss is more than `max_ratio`
        times as large, or twice that if only the inputs tell that it is a cross entropy.

        A sum over the batch is no issue: it is larger than outputs of this size explain, and fits
        when it is divided by the number of targets.

        A loss that cannot be negative fires if it is below 0 at one of the first `num_points` saved
        training steps.

    Parameters:
        max_ratio: Times the loss of guessing.
        num_points: First saved losses that must not be negative.

    What to try:
        Compare outputs and targets with what the loss takes. Scale targets to variance 1. Divide a
        summed loss by the batch size. Initialise the last layer with smaller weights.
    """

    max_ratio: Annotated[float, GreaterThan(1), Unit("times the loss of guessing")] = 3.0
    num_points: Annotated[int, AtLeast(1), Unit("saved steps")] = 20

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        LOSS_INPUTS,
        CollectionConfig("gradients", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge the first losses.

        Args:
            step: What was saved at the step.
            memory: `seen`: how many steps with a loss there were.
        """
        if not is_training(step):
            return NotApplicable(f"a step of mode {step.mode.name} has no training loss")
        seen = memory.get("seen", 0)
        if seen >= self.num_points:
            return NotApplicable("only the first losses are judged")
        facts = step.fact(LossFacts)
        losses = [loss for loss in facts.losses if math.isfinite(loss.value)]
        if not losses or not len(step.tensors(collections=("gradients",))):
            raise Missing("no finite loss was saved, or no gradients with it")
        is_first = not seen and step.mode_step == 0
        limits = {loss: self._limit(loss) if is_first else math.nan for loss in losses}
        ratios = {loss: _ratio(facts, loss, limit) for loss, limit in limits.items()}
        worst = max(ratios, key=lambda loss: ratios[loss])
        can_be_judged = ratios[worst] > 0 or any(
            not math.isnan(loss.guess) or (_NEVER_NEGATIVE.match(loss.name) and not is_first)
            for loss in losses
        )
        memory["seen"] = seen + 1
        if not can_be_judged:
            return NotEvaluated(f"the loss of guessing is unknown: {how_to_save_loss_inputs(step)}")
        return _finding(step, facts, worst, limits[worst]) if ratios[worst] > 0 else Passed()

    def _limit(self, loss: Loss) -> float:
        """Return the largest first loss that is no issue; NaN if that is unknown."""
        is_sure = loss.kind is not LossKind.LOOKS_LIKE_CLASSES
        return self.max_ratio * loss.guess * (1 if is_sure else _TIMES_UNSURE)


def _ratio(facts: LossFacts, loss: Loss, limit: float) -> float:
    """Return a loss in parts of its limit; 0 if it fits or nobody knows."""
    if loss.value < _NEGATIVE and _NEVER_NEGATIVE.match(loss.name):
        return math.inf
    return loss.value / limit if loss.value > limit and not facts.is_sum(loss, limit) else 0.0


def _finding(step: StepView, facts: LossFacts, loss: Loss, limit: float) -> IssueFound:
    threshold = limit
    message = f"begins at {loss.value:.4g}, more than {limit / loss.guess:g} times {loss.guess:.3g}"
    message += ", the loss of guessing"
    if loss.value < 0:
        threshold = 0.0
        message = f"is {loss.value:.4g} at step {step.step}, and this loss is never below 0"
    return IssueFound(
        evidence(
            step,
            facts.rows,
            loss.row,
            measure="initial_loss",
            value=loss.value,
            threshold=threshold,
            message=message,
            remedy=_REMEDY,
        )
    )
