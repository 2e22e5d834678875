"""InitialLossMismatch: a first loss that no untrained model should have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.loss_advice import loss_inputs_advice
from rule_runtime.facts.loss_inputs import (
    LOSS_INPUTS,
    LossInputs,
    LossKind,
    size_of_error,
)
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.facts.selection import evidence, finite_means, is_training, worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["InitialLossMismatch"]

_NEVER_NEGATIVE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE(WithLogits)?|MSE|L1|SmoothL1|Huber|CTC|KLDiv)Loss_output"
)
_UNSURE: Final = 2.0
_LEAST: Final = 0.5
_ROUNDING: Final = 1.05
_NEGATIVE: Final = -1e-4
_TABLE: Final = 2
_FEWEST_ROWS: Final = 8
_MOST: Final = 0.75
_UNKNOWN_LOSS: Final = "nobody knows what guessing gives for losses of these names"
_UNKNOWN_CLASSES: Final = (
    "the number of classes is not known, and so not what guessing gives: save the inputs of the "
    "loss (include_regex `[Ll]oss_input_`), or the collection `biases`"
)
_REMEDY: Final = (
    "Check that the loss fits the outputs and targets (logits or probabilities, a LogSoftmax ahead "
    "of NLLLoss, sum or mean over the batch), scale inputs and targets, and initialise the last "
    "layer small."
)


class InitialLossMismatch(Rule):
    """Finds first losses that do not fit an untrained model.

    How it decides:
        The training loss at the first step is compared with that of a model that knows nothing,
        which is ln(number of classes) for CrossEntropyLoss and NLLLoss; ln 2 for BCELoss and
        BCEWithLogitsLoss; and for MSELoss, L1Loss, SmoothL1Loss and HuberLoss that of answering 0,
        the mean square of the targets or its root, but not less than 1. It fires if the loss is
        more than `max_ratio` times as large. The number of classes is the second dimension of the
        scores, `..._input_0`, or else the size of the largest bias that was saved; where neither
        was, a cross entropy is not evaluated. A loss of any other name is taken for a cross entropy
        if its targets, `..._input_1`, are whole numbers, one for each row of its scores, and then
        twice as much is allowed. A loss that is no module, `Loss_output_0`, has what the only model
        returns for scores, and its own targets or else the only `labels`, if these are such
        numbers. A loss
        that fits when it is divided by the number of targets is a sum over the batch, and passes,
        unless the scores are so large that they explain it as a mean; so does one that is larger
        than a mean can be, by the sizes of outputs and targets. Losses of numbers are judged where
        the targets were saved and vary. Of other losses nobody knows what guessing gives, and they
        are not compared. A loss that cannot be negative by its name fires if it is below zero in
        one of the first `num_points` saved training steps. Judged are steps at which gradients were
        saved too; a run that does not begin at step 0 of its mode is judged for negative losses
        only.

    Parameters:
        max_ratio: Times the loss of guessing.
        num_points: First saved losses that are looked at for being negative.

    What to try:
        Compare outputs and targets with what the loss asks for; scale targets to variance 1; divide
        a summed loss by the size of the batch; a smaller initialisation of the last layer.
    """

    max_ratio: Annotated[float, GreaterThan(1), Unit("times the loss of guessing")] = 3.0
    num_points: Annotated[int, AtLeast(1), Unit("saved steps")] = 20

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        LOSS_INPUTS,
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
            return NotApplicable(f"a step of mode {step.mode.name} says nothing of the training")
        seen = memory.get("seen", 0)
        if seen >= self.num_points:
            return NotApplicable("only the first losses are judged")
        rows = step.tensors(collections=("losses",))
        losses, num_outputs = finite_means(rows), _num_outputs(step)
        if not (np.isfinite(losses).any() and len(step.tensors(collections=("gradients",)))):
            return NotEvaluated("no finite loss was saved, or no gradients beside it")
        memory["seen"] = seen + 1
        is_first = not seen and step.mode_step == 0
        inputs = step.fact(LossInputs)
        if not any(_is_known(name, inputs.kind(name, w)) for name, w in _pairs(rows)):
            return NotEvaluated(f"{_UNKNOWN_LOSS}: {loss_inputs_advice(step)}")
        limits = self._limits(rows, inputs, num_outputs) if is_first else np.full(len(rows), np.nan)
        ratios = self._ratios(rows, losses, limits, inputs)
        if is_first:
            ratios[[_has_margin(step, *pair) for pair in _pairs(rows)]] = np.nan
        if np.isnan(ratios).all():
            is_unknown = all(
                _lacks_classes(name, w, inputs, num_outputs) for name, w in _pairs(rows)
            )
            return NotEvaluated(_UNKNOWN_CLASSES) if is_unknown else Passed()
        row = worst(rows, ratios, largest=True)
        return self._finding(step, rows, row, (float(losses[row]), float(limits[row])))

    def _limits(
        self, rows: TensorRows, inputs: LossInputs, num_outputs: int | None
    ) -> npt.NDArray[np.float64]:
        """Return the largest loss [R] that is no issue, NaN where nobody knows."""
        limits = []
        for name, worker in _pairs(rows):
            is_sure = inputs.kind(name, worker) is not LossKind.LOOKS_LIKE_CLASSES
            times = self.max_ratio * (1 if is_sure else _UNSURE)
            limits.append(times * inputs.guess(name, worker, num_outputs))
        return np.array(limits)

    def _ratios(
        self,
        rows: TensorRows,
        losses: npt.NDArray[np.float64],
        limits: npt.NDArray[np.float64],
        inputs: LossInputs,
    ) -> npt.NDArray[np.float64]:
        """Return each loss [R] in parts of its limit; NaN if it fits."""
        ratios = np.full(len(rows), np.nan)
        for at in np.flatnonzero(np.isfinite(losses)):
            name, worker = rows.names[at], rows.workers[at]
            if losses[at] < _NEGATIVE and _NEVER_NEGATIVE.match(name):
                ratios[at] = np.inf
            elif losses[at] > limits[at]:
                least = _LEAST * self._least(name, worker, inputs, limits[at])
                most = float(limits[at])
                loss = float(losses[at])
                is_mean = _is_explained(inputs, name, worker, loss)
                if is_mean or not inputs.is_sum(name, worker, loss, least=least, most=most):
                    ratios[at] = losses[at] / limits[at]
        return ratios

    def _least(self, name: str, worker: str, inputs: LossInputs, limit: float) -> float:
        """Return the loss of guessing, which is below 1 for numbers that are small."""
        kind, targets = inputs.kind(name, worker), inputs.of(name, worker, 1)
        if kind.is_of_numbers and targets is not None:
            return size_of_error(kind, name, targets.mean_square)
        return limit / self.max_ratio

    def _finding(
        self, step: StepView, rows: TensorRows, at: int, seen: tuple[float, float]
    ) -> IssueFound:
        loss, above_zero = seen
        limit = 0.0 if loss < 0 else above_zero
        message = f"is {loss:.4g} at step {step.step}, and such a loss is never below 0"
        if loss >= 0:
            guess = step.fact(LossInputs).guess(
                rows.names[at], rows.workers[at], _num_outputs(step)
            )
            times = f"{limit / guess:g} times {guess:.3g}"
            message = f"begins at {loss:.4g}, more than {times}, which guessing gives"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="initial_loss",
                value=loss,
                threshold=limit,
                message=message,
                remedy=_REMEDY,
            )
        )


def _is_explained(inputs: LossInputs, name: str, worker: str, loss: float) -> bool:
    """Tell whether a mean over the batch may be so large, if the targets are not known yet.

    Scores of standard deviation s give ln C + s sqrt(2 ln C) at most, were they normal; those of
    yes and no ln 2 and their root mean square; and logarithms of probabilities their mean.
    """
    kind, scores = inputs.kind(name, worker), inputs.of(name, worker, 0)
    if scores is None or name.startswith("BCELoss"):
        return False
    if kind.is_of_numbers:
        return loss <= _ROUNDING * inputs.largest_mean(name, worker)
    if kind is LossKind.BINARY:
        return loss <= math.log(2) + math.sqrt(scores.mean_square)
    if name.startswith("NLL"):
        return loss <= _UNSURE * -scores.mean
    of_guessing = math.log(max(inputs.num_classes(name, worker) or 2, 2))
    return loss <= of_guessing + scores.std * math.sqrt(2 * of_guessing)


def _pairs(rows: TensorRows) -> list[tuple[str, str]]:
    return list(zip(rows.names, rows.workers, strict=True))


def _is_known(name: str, kind: LossKind) -> bool:
    return kind is not LossKind.UNKNOWN or _NEVER_NEGATIVE.match(name) is not None


def _lacks_classes(name: str, worker: str, inputs: LossInputs, num_outputs: int | None) -> bool:
    """Tell whether a loss is not known, or is of classes of which nobody knows the number."""
    kind = inputs.kind(name, worker)
    if kind is LossKind.CLASSES:
        return math.isnan(inputs.guess(name, worker, num_outputs))
    return not _is_known(name, kind)


def _num_outputs(step: StepView) -> int | None:
    """Return the size of the largest bias; None if none was saved."""
    sizes = step.tensors(collections=("biases",)).column("size")
    return int(np.nan_to_num(sizes).max(initial=0)) or None


def _has_margin(step: StepView, loss: str, worker: str) -> bool:
    """Tell whether the score of the true class was lowered, as a margin of angles does.

    It is the smallest of 3 classes or more in most rows then, which is not so by chance.
    """
    values = outputs_and_targets(step, loss, worker)
    if values is None:
        return False
    scores, classes = values
    if scores.ndim != _TABLE or classes.shape != scores.shape[:1] or classes.dtype.kind not in "iu":
        return False
    if scores.shape[1] <= _TABLE or len(classes) < _FEWEST_ROWS:
        return False
    known = (classes >= 0) & (classes < scores.shape[1])
    are_lowest = scores[known].argmin(axis=1) == classes[known]
    return bool(known.any() and are_lowest.mean() > _MOST)
