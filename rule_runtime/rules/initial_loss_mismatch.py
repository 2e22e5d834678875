"""InitialLossMismatch: a first loss that no untrained model should have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

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
_OF_NUMBERS: Final = re.compile(r"^(MSE|L1)Loss_output")
_LEAST: Final = 0.5
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
        The training loss at the first step is compared with that of a model that knows nothing,
        which is ln(number of classes) for CrossEntropyLoss and NLLLoss; ln 2 for BCELoss and
        BCEWithLogitsLoss; and for MSELoss and L1Loss that of answering 0, the mean square of the
        targets and its root, but not less than 1. It fires if the loss is more than `max_ratio`
        times as large. The number of classes is the second dimension of the scores,
        `..._input_0`, or else the size of the largest bias that was saved. A loss that fits when it
        is divided by the number of targets, `..._input_1`, is a sum over the batch, and passes.
        MSELoss and L1Loss are judged where the targets were saved and vary. Of losses of other
        names nobody knows what guessing gives, and they are not compared. A loss that cannot be
        negative by its name fires if it is below zero in one of the first `num_points` saved
        training steps. Judged are steps at which gradients were saved too; a run that does not
        begin at step 0 of its mode is judged for negative losses only.

    Parameters:
        max_ratio: Times the loss of guessing.
        num_points: First saved losses that are looked at for being negative.

    What to try:
        Compare outputs and targets with what the loss asks for; scale targets to variance 1; divide
        a summed loss by the size of the batch; a smaller initialisation of the last layer.

    Known false alarms:
        Losses with weights of classes far above 1; targets far from all that is saved of them.

    Source:
        Stepwatch; "initial loss" of TheDeepChecker (2022), which asks for less than twice ln C.
    """

    max_ratio: Annotated[float, GreaterThan(1), Unit("times the loss of guessing")] = 3.0
    num_points: Annotated[int, AtLeast(1), Unit("saved steps")] = 20

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        CollectionConfig(
            "loss_inputs", {"include_regex": "[Ll]oss_input_[0-9]+$", "save_interval": "10"}
        ),
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
        losses, num_outputs = finite_means(rows), _num_outputs(step)
        if not (np.isfinite(losses).any() and num_outputs):
            return NotEvaluated("no finite loss was saved, or no gradients beside it")
        memory["seen"] = seen + 1
        is_first = not seen and step.mode_step == 0
        guesses = _Guesses(step, num_outputs) if is_first else None
        if not any(_NEVER_NEGATIVE.match(name) for name in rows.names):
            return NotEvaluated("nobody knows what guessing gives for losses of these names")
        ratios, limits = self._ratios(rows, losses, guesses)
        if not np.nanmax(ratios, initial=0.0) > self.max_ratio:
            return Passed()
        row = worst(rows, ratios, largest=True)
        return self._finding(step, rows, row, (float(losses[row]), float(limits[row])))

    def _ratios(
        self, rows: TensorRows, losses: npt.NDArray[np.float64], guesses: _Guesses | None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return each loss [R] in parts of that of guessing, and the largest that is no issue."""
        ratios, limits = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        for at in np.flatnonzero(np.isfinite(losses)):
            name, worker = rows.names[at], rows.workers[at]
            if losses[at] < _NEGATIVE and _NEVER_NEGATIVE.match(name):
                ratios[at] = np.inf
            elif guesses is not None and losses[at] > 0:
                limits[at] = self.max_ratio * guesses.of(name, worker)
                if not guesses.is_sum(name, worker, float(losses[at]), limits[at]):
                    ratios[at] = self.max_ratio * losses[at] / limits[at]
        return ratios, limits

    def _finding(
        self, step: StepView, rows: TensorRows, at: int, seen: tuple[float, float]
    ) -> IssueFound:
        loss, above_zero = seen
        limit = 0.0 if loss < 0 else above_zero
        told = f"is {loss:.4g} at step {step.step}, and such a loss is never below 0"
        if loss >= 0:
            times = f"{self.max_ratio:g} times {limit / self.max_ratio:.3g}"
            told = f"begins at {loss:.4g}, more than {times}, which guessing gives"
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


class _Guesses:
    """What a model that knows nothing gets as losses.

    Args:
        step: The step.
        num_outputs: Number of classes where the scores of a loss were not saved.
    """

    def __init__(self, step: StepView, num_outputs: int) -> None:
        self._rows = step.tensors(regex=(r"_input_[01]$",))
        pairs = zip(self._rows.names, self._rows.workers, strict=True)
        self._at = {pair: at for at, pair in enumerate(pairs)}
        self._num_outputs = num_outputs

    def of(self, name: str, worker: str) -> float:
        """Return the loss of guessing; NaN if it is not known."""
        if _BINARY.match(name):
            return math.log(2)
        if _CLASSES.match(name):
            return math.log(self._num_classes(name, worker))
        square = self._mean_square(name, worker) if _OF_NUMBERS.match(name) else math.nan
        if math.isnan(square):
            return math.nan
        return max(1.0, square if name.startswith("MSE") else math.sqrt(square))

    def is_sum(self, name: str, worker: str, loss: float, limit: float) -> bool:
        """Tell whether a loss fits once it is divided by the number of targets."""
        at = self._input(name, worker, 1)
        size = 0.0 if at is None else float(self._rows.column("size")[at])
        if not size > 1:
            return False
        least = _LEAST * self.of(name, worker)
        if _OF_NUMBERS.match(name):
            square = self._mean_square(name, worker)
            least = _LEAST * (square if name.startswith("MSE") else math.sqrt(square))
        return least <= loss / size <= limit

    def _num_classes(self, name: str, worker: str) -> int:
        at = self._input(name, worker, 0)
        shape = None if at is None else self._rows.shapes[at]
        return max(shape[1] if shape is not None and len(shape) > 1 else self._num_outputs, 2)

    def _mean_square(self, name: str, worker: str) -> float:
        """Return the mean square of the targets; NaN if they were not saved or do not vary."""
        at = self._input(name, worker, 1)
        if at is None or not self._rows.column("std")[at] > 0:
            return math.nan
        return float(self._rows.column("mean")[at] ** 2 + self._rows.column("std")[at] ** 2)

    def _input(self, name: str, worker: str, number: int) -> int | None:
        return self._at.get((f"{name.rpartition('_output')[0]}_input_{number}", worker))


def _num_outputs(step: StepView) -> int:
    """Return the size of the largest bias; 2 if there is none, 0 if no gradient was saved."""
    biases = step.tensors(collections=("biases",))
    if not len(step.tensors(collections=("gradients",))):
        return 0
    return max(int(np.nan_to_num(biases.column("size")).max(initial=0)), 2)
