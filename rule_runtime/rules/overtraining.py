"""Overtraining: a run that continues although the validation loss has stopped improving."""

from __future__ import annotations

from typing import Annotated, Any

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.selection import issue, what_to_try
from rule_runtime.facts.validation_passes import validation_passes
from rule_runtime.trial.step_view import StepView

__all__ = ["Overtraining"]


class Overtraining(Rule):
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

    collections = (
        CollectionConfig("losses", {"train.save_interval": "100", "eval.save_interval": "10"}),
    )

    def needs(self) -> Needs:
        """Return `patience_validation` passes after a first one."""
        return Needs(validation_passes=1 + self.patience_validation)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the validation passes that a step finishes.

        Memory: The state of `validation_passes`; the best of each loss, and the number of passes
        since.
        """
        passes = validation_passes(step, memory)
        if not passes:
            return NotApplicable("no validation pass ended at this step")
        found = []
        for one in passes:
            num_stale = self._num_stale(one.notes, "validation", one.validation)
            num_both = min(num_stale, self._num_stale(one.notes, "training", one.training))
            if num_stale >= self.patience_validation or num_both >= self.patience_train:
                found.append((-num_stale, one.loss, one.worker, one))
        if not found:
            return Passed()
        num_stale, *_, one = min(found)
        by_validation = -num_stale >= self.patience_validation
        too = "" if by_validation else ", and the training loss has not either"
        text = (
            f"the validation loss, now {one.validation:.6g}, has not improved on "
            f"{one.notes['best_validation']:.6g} by {self.delta:g} in {-num_stale} evaluations{too}"
        )
        limit = self.patience_validation if by_validation else self.patience_train
        measured = ("evaluations_without_improvement", -num_stale, limit)
        return issue(step, (one.loss, one.worker), measured, text, what_to_try(self))

    def _num_stale(self, notes: dict[str, Any], side: str, value: float) -> int:
        """Return the number of consecutive passes without improvement."""
        best = notes.get(f"best_{side}")
        improves = best is None or value < best - self.delta
        if improves:
            notes[f"best_{side}"] = value
        return streak(notes, is_bad=not improves, name=side)
