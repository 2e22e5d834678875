"""Overtraining: a run that goes on although the validation loss has stopped improving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.evaluation_phases import finished_phases

if TYPE_CHECKING:
    from rule_runtime.facts.evaluation_phases import Phase
    from rule_runtime.trial.step_view import StepView

__all__ = ["Overtraining"]

_REMEDY: Final = (
    "Stop here and take the model of the best evaluation (early stopping), or lower the learning "
    "rate. If the loss still falls slowly, lower delta or raise the patience."
)


class _Stale(NamedTuple):
    """How long a loss has not improved, and its best value."""

    num_phases: int
    best: float


class Overtraining(Rule):
    """Detects runs that go on although the validation loss has stopped improving.

    How it decides:
        As early stopping does, with mean losses of evaluation phases. A phase improves on the best
        one if its loss is smaller by more than `delta`. The rule fires when `patience_validation`
        phases in a row did not improve the validation loss, or when `patience_train` phases in a
        row improved neither loss.

    Parameters:
        patience_train: Evaluation phases without improvement of both losses that make an issue.
        patience_validation: Evaluation phases without improvement of the validation loss that make
            an issue.
        delta: The improvement of a loss that counts as one, in units of the loss.

    What to try:
        Early stopping with the best checkpoint; a lower learning rate or a schedule.
    """

    patience_train: Annotated[int, AtLeast(1), Unit("evaluation phases")] = 5
    patience_validation: Annotated[int, AtLeast(1), Unit("evaluation phases")] = 10
    delta: Annotated[float, AtLeast(0), Unit("units of the loss")] = 0.01

    collections = (
        CollectionConfig("losses", {"train.save_interval": "100", "eval.save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge the evaluation phases that ended with this step.

        Args:
            step: What was saved at the step.
            memory: The means of at most 32 losses, the best of each and how long ago it was.
        """
        phases, reason = finished_phases(step, (), memory)
        if not phases:
            return NotEvaluated(reason)
        found = []
        for phase in phases:
            validation = self._stale(phase.notes, "validation", phase.validation)
            training = self._stale(phase.notes, "training", phase.training)
            num_both = min(validation.num_phases, training.num_phases)
            if validation.num_phases >= self.patience_validation or num_both >= self.patience_train:
                found.append((-validation.num_phases, phase.loss, phase.worker, phase, validation))
        if not found:
            return Passed()
        *_, phase, validation = min(found)
        return IssueFound(self._evidence(step, phase, validation))

    def _stale(self, notes: dict[str, Any], side: str, value: float) -> _Stale:
        best, num_phases = notes.get(side, (None, 0))
        if best is None or value < best - self.delta:
            best, num_phases = value, 0
        else:
            num_phases += 1
        notes[side] = [best, num_phases]
        return _Stale(num_phases, best)

    def _evidence(self, step: StepView, phase: Phase, validation: _Stale) -> Evidence:
        by_validation = validation.num_phases >= self.patience_validation
        threshold = self.patience_validation if by_validation else self.patience_train
        too = "" if by_validation else ", and the training loss has not either"
        return Evidence(
            step=step.step,
            mode=step.mode.name,
            worker=phase.worker,
            tensor=phase.loss,
            measure="evaluations_without_improvement",
            value=float(validation.num_phases),
            threshold=float(threshold),
            sentence=(
                f"{phase.loss}: the validation loss, now {phase.validation:.6g}, has not improved "
                f"on {validation.best:.6g} by {self.delta:g} in {validation.num_phases} "
                f"evaluations{too}"
            ),
            remedy=_REMEDY,
        )
