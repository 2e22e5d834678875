"""Overfit: a validation loss far above the training loss."""

from __future__ import annotations

from typing import Annotated

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.needs import passes_of_patience
from rule_runtime.engine.outcome import NotApplicable, NotEnough, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.facts.selection import issue, selected_collections, what_to_try
from rule_runtime.facts.validation_passes import ValidationPass, validation_passes
from rule_runtime.trial.step_view import StepView

__all__ = ["Overfit"]


class Overfit(Rule):
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

    collections = (
        CollectionConfig("losses", {"train.save_interval": "100", "eval.save_interval": "10"}),
    )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection `losses`, or that of `tensor_regex` if it is given."""
        intervals = self.collections[0].parameters
        chosen = selected_collections("Overfit", (), self.tensor_regex, intervals)
        return chosen or self.collections

    needs = passes_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the validation passes that a step finishes.

        Memory: The state of `validation_passes`, and the bad streak of each loss.
        """
        if step.step < self.start_step:
            raise NotEnough(self.start_step, "step", step.step, "start_step")
        passes = validation_passes(step, memory, self.tensor_regex)
        if not passes:
            return NotApplicable("no validation pass ended at this step")
        found = []
        for one in passes:
            ratio = _ratio(one)
            if streak(one.notes, is_bad=ratio > self.ratio_threshold) >= self.patience:
                found.append((-ratio, one.loss, one.worker, one))
        if found:
            ratio, *_, one = min(found)
            times = f", {self.patience} passes in a row" if self.patience > 1 else ""
            text = (
                f"the validation loss {one.validation:.6g} is larger than the training loss "
                f"{one.training:.6g} by a ratio of {-ratio:.3g}, more than "
                f"{self.ratio_threshold:g}{times}"
            )
            measured = ("validation_to_training_ratio", -ratio, self.ratio_threshold)
            return issue(step, (one.loss, one.worker), measured, text, what_to_try(self))
        if all(one.training <= 0 for one in passes):
            return NotEvaluated(f"the mean training loss for {passes[0].loss} is not above zero")
        return Passed()


def _ratio(one: ValidationPass) -> float:
    """Return the excess of validation relative to training; NaN if training is not positive."""
    if one.training <= 0:
        return float("nan")
    return (one.validation - one.training) / one.training
