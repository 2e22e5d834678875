"""Overfit and Overtraining: validation passes far above training, or no longer improving."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import issue
from rule_runtime.engine.needs import Needs, passes_of_patience
from rule_runtime.engine.outcome import NotApplicable, NotEnough, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import selected_collections
from rule_runtime.facts.validation_passes import ValidationPass, validation_passes
from rule_runtime.trial.step_view import StepView

__all__ = ["Overfit", "Overtraining"]

_Fault = tuple[tuple[str, float, float], str]
"""Name of the measure, its value and the threshold; the finding in words."""


class _PassRule(Rule):
    """Evaluates the validation passes that a step finishes, and reports the worst loss."""

    collections = (
        CollectionConfig("losses", {"train.save_interval": "100", "eval.save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the validation passes that a step finishes.

        Memory: The state of `validation_passes`, with the rule's notes of each loss.
        """
        passes = self._passes(step, memory)
        if not passes:
            return NotApplicable("no validation pass ended at this step")
        faults = [(fault, one.loss, one.worker) for one in passes if (fault := self._fault(one))]
        if not faults:
            return self._without_fault(passes)
        (measured, text), *tensor = min(faults, key=lambda one: (-one[0][0][1], *one[1:]))
        return issue(step, (tensor[0], tensor[1]), measured, text, self)

    def _passes(self, step: StepView, memory: Memory) -> list[ValidationPass]:
        return validation_passes(step, memory)

    @abstractmethod
    def _fault(self, one: ValidationPass) -> _Fault | None:
        """Return the fault of a loss if it has lasted; otherwise None."""

    def _without_fault(self, passes: list[ValidationPass]) -> Outcome:  # noqa: ARG002
        return Passed()


class Overfit(_PassRule):
    """Detects a validation loss that is larger than the training loss by more than a given share.

    How it decides:
        The rule compares the mean loss of each validation pass with the mean training loss since
        the previous pass. It fires if (validation - training) / training exceeds `ratio_threshold`
        in `patience` passes in a row.

    Parameters:
        tensor_regex: Regular expressions of the losses; by default the collection `losses`.
        start_step: First global step to evaluate.
        patience: Validation passes in a row.
        ratio_threshold: The largest ratio that passes.

    What to try:
        Stop where the validation loss was smallest. Get more data or augment it, add weight decay
        or dropout, or take a smaller model (XGBoost: a smaller max_depth, a larger
        min_child_weight, subsampling).
    """

    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()
    start_step: Annotated[int, AtLeast(0), Unit("steps")] = 0
    patience: Annotated[int, AtLeast(1), Unit("validation passes")] = 1
    ratio_threshold: Annotated[float, AtLeast(0)] = 0.1

    needs = passes_of_patience

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection `losses`, or that of `tensor_regex` if it is given."""
        intervals = self.collections[0].parameters
        chosen = selected_collections("Overfit", (), self.tensor_regex, intervals)
        return chosen or self.collections

    def _passes(self, step: StepView, memory: Memory) -> list[ValidationPass]:
        if step.step < self.start_step:
            raise NotEnough(self.start_step, "step", step.step, "start_step is set")
        return validation_passes(step, memory, self.tensor_regex)

    def _fault(self, one: ValidationPass) -> _Fault | None:
        is_known, limit = one.training > 0, self.ratio_threshold
        ratio = (one.validation - one.training) / one.training if is_known else math.nan
        if streak(one.notes, is_bad=ratio > limit) < self.patience:
            return None
        times = f", {self.patience} passes in a row" if self.patience > 1 else ""
        text = f"the validation loss {one.validation:.6g} is larger than the training loss "
        text += f"{one.training:.6g} by a ratio of {ratio:.3g}, more than {limit:g}{times}"
        return ("validation_to_training_ratio", ratio, limit), text

    def _without_fault(self, passes: list[ValidationPass]) -> Outcome:
        if all(one.training <= 0 for one in passes):
            return NotEvaluated(f"a ratio needs positive losses; that of {passes[0].loss} is not")
        return Passed()


class Overtraining(_PassRule):
    """Detects runs that continue although the validation loss has stopped improving.

    How it decides:
        The rule works like early stopping. A validation pass improves on the best one if its mean
        loss is smaller by more than `delta`. The rule fires after `patience_validation` passes
        without a better validation loss, or `patience_train` passes in which neither loss is
        better.

    Parameters:
        patience_train: Passes in a row without improvement of either loss.
        patience_validation: Passes in a row without improvement of the validation loss.
        delta: Smallest improvement, in units of the loss.

    What to try:
        Stop here and take the model of the best evaluation (early stopping), or lower the learning
        rate. If the loss still falls slowly, lower delta or raise the patience.
    """

    patience_train: Annotated[int, AtLeast(1), Unit("validation passes")] = 5
    patience_validation: Annotated[int, AtLeast(1), Unit("validation passes")] = 10
    delta: Annotated[float, AtLeast(0), Unit("units of the loss")] = 0.01

    def needs(self) -> Needs:
        """Return `patience_validation` passes after a first one."""
        return Needs(validation_passes=1 + self.patience_validation)

    def _fault(self, one: ValidationPass) -> _Fault | None:
        """Return the fault of a loss that is stale.

        Memory: the best of each loss, and the number of passes since.
        """
        num_stale = self._num_stale(one.notes, "validation", one.validation)
        num_both = min(num_stale, self._num_stale(one.notes, "training", one.training))
        is_stale = num_stale >= self.patience_validation
        if not is_stale and num_both < self.patience_train:
            return None
        best, too = one.notes["best_validation"], ", and the training loss has not either"
        text = f"the validation loss, now {one.validation:.6g}, has not improved on {best:.6g} by "
        text += f"{self.delta:g} in {num_stale} evaluations{'' if is_stale else too}"
        limit = self.patience_validation if is_stale else self.patience_train
        return ("evaluations_without_improvement", num_stale, limit), text

    def _num_stale(self, notes: dict[str, Any], side: str, value: float) -> int:
        """Return the number of consecutive passes without improvement."""
        improves = value < notes.get(f"best_{side}", math.inf) - self.delta
        if improves:
            notes[f"best_{side}"] = value
        return streak(notes, is_bad=not improves, name=side)
