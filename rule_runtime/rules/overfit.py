"""Overfit: a validation loss far above the training loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.facts.evaluation_phases import finished_phases
from rule_runtime.facts.selection import selected_collections

if TYPE_CHECKING:
    from rule_runtime.facts.evaluation_phases import Phase
    from rule_runtime.trial.step_view import StepView

__all__ = ["Overfit"]

_REMEDY: Final = (
    "Stop where the validation loss was smallest. Get more data or augment it, add weight decay or "
    "dropout, or take a smaller model (XGBoost: a smaller max_depth, a larger min_child_weight, "
    "subsampling)."
)


class Overfit(Rule):
    """Detects a validation loss that is larger than the training loss by more than a given share.

    How it decides:
        The validation loss is the mean of an evaluation phase, the EVAL steps since the last TRAIN
        step. The training loss is the mean since the phase before. The rule fires if (validation -
        training) / training exceeds `ratio_threshold` in `patience` phases in a row.

    Parameters:
        tensor_regex: Regular expressions of the losses; the collection `losses` if not given.
        start_step: Global step before which nothing is judged.
        patience: Evaluation phases in a row with a ratio above the threshold.
        ratio_threshold: The largest ratio that is no issue.

    What to try:
        Early stopping, more or augmented data, weight decay, dropout, a smaller model.
    """

    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()
    start_step: Annotated[int, AtLeast(0), Unit("steps")] = 0
    patience: Annotated[int, AtLeast(1), Unit("evaluation phases")] = 1
    ratio_threshold: Annotated[float, AtLeast(0)] = 0.1

    collections = (
        CollectionConfig("losses", {"train.save_interval": "100", "eval.save_interval": "10"}),
    )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection `losses`, or what was chosen in its place."""
        intervals = self.collections[0].parameters
        chosen = selected_collections("Overfit", (), self.tensor_regex, intervals)
        return chosen or self.collections

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge the evaluation phases that ended with this step.

        Args:
            step: What was saved at the step.
            memory: The means of at most 32 losses, and how often in a row each was too large.
        """
        if step.step < self.start_step:
            return NotEvaluated(f"steps before start_step {self.start_step} are not judged")
        phases, reason = finished_phases(step, self.tensor_regex, memory)
        if not phases:
            return NotEvaluated(reason)
        judged = [phase for phase in phases if phase.training > 0]
        found = []
        for phase in phases:
            ratio = _ratio(phase)
            if streak(phase.notes, is_bad=ratio > self.ratio_threshold) >= self.patience:
                found.append((-ratio, phase.loss, phase.worker, phase))
        if found:
            return IssueFound(self._evidence(step, min(found)[-1]))
        if not judged:
            return NotEvaluated(f"the mean training loss for {phases[0].loss} is not above zero")
        return Passed()

    def _evidence(self, step: StepView, phase: Phase) -> Evidence:
        ratio = _ratio(phase)
        times = f", {self.patience} evaluations in a row" if self.patience > 1 else ""
        return Evidence(
            step=step.step,
            mode=step.mode.name,
            worker=phase.worker,
            tensor=phase.loss,
            measure="validation_to_training_ratio",
            value=ratio,
            threshold=self.ratio_threshold,
            sentence=(
                f"{phase.loss}: the validation loss {phase.validation:.6g} is larger than the "
                f"training loss {phase.training:.6g} by a ratio of {ratio:.3g}, more than "
                f"{self.ratio_threshold:g}{times}"
            ),
            remedy=_REMEDY,
        )


def _ratio(phase: Phase) -> float:
    """Return how far validation is above training; NaN where training is not above zero."""
    if phase.training <= 0:
        return float("nan")
    return (phase.validation - phase.training) / phase.training
