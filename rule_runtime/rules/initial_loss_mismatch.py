"""InitialLossMismatch: a first loss that no untrained model should have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.evaluation.selection import evidence, finite_means, is_training, worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["InitialLossMismatch"]

_CLASSES: Final = re.compile(r"^(CrossEntropy|NLL)Loss_output")
_BINARY: Final = re.compile(r"^BCE(WithLogits)?Loss_output")
_NEVER_NEGATIVE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE(WithLogits)?|MSE|L1|SmoothL1|Huber|CTC|KLDiv)Loss_output"
)
_NEGATIVE: Final = -1e-6
_REMEDY: Final = (
    "Check that the loss fits the outputs and targets (logits or probabilities, a LogSoftmax ahead "
    "of NLLLoss, sum or mean over the batch), scale inputs and targets, and initialise the last "
    "layer small."
)


class InitialLossMismatch(Rule):
    """Finds first losses that do not fit an untrained model.

    What it detects:
        A loss at the very beginning far above what guessing gives; or one below zero that cannot be
        below zero.

    Why it matters:
        It shows mistakes before anything is learned: a loss that is fed with the wrong kind of
        outputs, targets without scale, weights that are initialised too large.

    How it decides:
        The training loss at the first step is compared with that of guessing, which is ln(number of
        classes) for CrossEntropyLoss and NLLLoss, ln 2 for BCELoss and BCEWithLogitsLoss. The
        number of classes is taken to be the size of the largest bias that was saved, which is
        rather too large than too small. Of other losses guessing is taken to give the larger of 1
        (targets of variance 1) and that logarithm. It fires if the loss is more than `max_ratio`
        times as large. A loss that cannot be negative by its name fires if it is below zero in one
        of the first `num_points` saved training steps. Judged are steps at which gradients were
        saved too; a run that does not begin at step 0 of its mode is judged for negative losses
        only.

    Parameters:
        max_ratio: Times the loss of guessing.
        num_points: First saved losses that are looked at for being negative.

    What to try:
        Compare outputs and targets with what the loss asks for; scale targets to variance 1; divide
        a summed loss by the size of the batch; a smaller initialisation of the last layer.

    Known false alarms:
        Losses that are summed over a batch, sums of several terms, and targets that are not scaled
        on purpose.

    Source:
        Stepwatch; "initial loss" of TheDeepChecker (2022), which asks for less than twice ln C.
    """

    max_ratio: Annotated[float, GreaterThan(1), Unit("times the loss of guessing")] = 3.0
    num_points: Annotated[int, AtLeast(1), Unit("saved steps")] = 20

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        CollectionConfig("biases", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge the first losses.

        Args:
            step: What was saved at the step.
            memory: `seen`: how many steps with a loss there were.
        """
        if not is_training(step):
            return NotEvaluated(f"a step of mode {step.mode.name} says nothing of the training")
        seen = memory.get("seen", 0)
        if seen >= self.num_points:
            return NotEvaluated("only the first losses are judged")
        rows = step.tensors(collections=("losses",))
        losses = finite_means(rows)
        if not np.isfinite(losses).any():
            return NotEvaluated("no finite loss was saved")
        num_outputs = _num_outputs(step)
        if not num_outputs:
            return NotEvaluated("no gradients were saved beside the loss")
        memory["seen"] = seen + 1
        is_first = not seen and step.mode_step == 0
        ratios = np.full(len(rows), np.nan)
        for at in np.flatnonzero(np.isfinite(losses)):
            if losses[at] < _NEGATIVE and _NEVER_NEGATIVE.match(rows.names[at]):
                ratios[at] = np.inf
            elif is_first and losses[at] > 0:
                ratios[at] = losses[at] / _guessing(rows.names[at], num_outputs)
        if not np.nanmax(ratios, initial=0.0) > self.max_ratio:
            return Passed()
        row = worst(rows, ratios, largest=True)
        return self._finding(step, rows, row, (float(losses[row]), num_outputs))

    def _finding(
        self, step: StepView, rows: TensorRows, at: int, seen: tuple[float, int]
    ) -> IssueFound:
        loss, num_outputs = seen
        guess = _guessing(rows.names[at], num_outputs)
        limit = 0.0 if loss < 0 else self.max_ratio * guess
        told = (
            f"is {loss:.4g} at step {step.step}, and such a loss is never below 0"
            if loss < 0
            else f"begins at {loss:.4g}, more than {self.max_ratio:g} times {guess:.3g}, which "
            "guessing gives"
        )
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="initial_loss",
                value=loss,
                threshold=limit,
                told=told,
                remedy=_REMEDY,
            )
        )


def _guessing(name: str, num_outputs: int) -> float:
    """Return the loss of a model that guesses."""
    if _BINARY.match(name):
        return math.log(2)
    of_classes = math.log(max(num_outputs, 2))
    return of_classes if _CLASSES.match(name) else max(1.0, of_classes)


def _num_outputs(step: StepView) -> int:
    """Return the size of the largest bias; 2 if there is none, 0 if no gradient was saved."""
    biases = step.tensors(collections=("biases",))
    if not len(step.tensors(collections=("gradients",))):
        return 0
    return max(int(np.nan_to_num(biases.column("size")).max(initial=0)), 2)
