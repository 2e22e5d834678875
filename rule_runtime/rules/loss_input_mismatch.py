"""LossInputMismatch: wrong loss formulas, and distances to class numbers."""

from __future__ import annotations

from typing import Annotated

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.loss_formulas import WRONG_LOSSES, recognise
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.class_distances import distances_to_classes
from rule_runtime.facts.losses import INPUT_VALUES, Losses
from rule_runtime.facts.missing import how_to_save_loss_inputs, missing_loss
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView

__all__ = ["LossInputMismatch"]


class LossInputMismatch(Rule):
    """Detects wrong loss formulas, and distance losses for class numbers.

    How it decides:
        The rule reports:
        * a loss that equals a wrong formula, such as the mean over all pairs, and no right one;
        * a distance, such as MSELoss, between one output and the numbers of 3 to 32 classes, at
          `patience` saved training steps in a row.

    Parameters:
        samples: Labels to count before they can be class numbers.
        patience: Saved steps in a row.
        labels_regex: Regular expressions of tensors that are labels.

    What to try:
        Compare the formula of the loss with its documentation. Use a loss of classes for classes.
    """

    samples: Annotated[int, AtLeast(1), Unit("labels")] = 40
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3
    labels_regex: Annotated[tuple[str, ...], Regex()] = ("^labels$",)

    collections = (
        *saved_every(10, "losses", "loss_inputs"),
        INPUT_VALUES,
        CollectionConfig("labels", {"save_raw_tensor": "True"}),
    )

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with their outputs and targets.

        Memory: The state of `ClassTallies`; `losses`: streaks and matching formulas of at most 32
        losses.
        """
        if step.mode.name in ("EVAL", "PREDICT"):
            return NotApplicable(f"losses of mode {step.mode.name} are not evaluated")
        losses = step.fact(Losses)
        if not losses.losses:
            raise missing_loss(step)
        classes = distances_to_classes(step, memory, self.labels_regex, self.samples)
        states = memory.setdefault("losses", {})
        is_judged, found = bool(classes), []
        for loss in losses.losses:
            if loss.key not in states and len(states) >= MAX_SERIES:
                continue
            state = states.setdefault(loss.key, {})
            num_classes = classes.get(loss.key)
            is_seen = num_classes is not None or loss.outputs is not None
            # Labels of boosted trees are saved only in a few rounds.
            if is_seen and streak(state, is_bad=num_classes is not None) >= self.patience:
                message = f"is a distance to labels that are numbers of {num_classes} classes"
                remedy = "Use a loss of classes, such as nn.CrossEntropyLoss or multi:softprob."
                measured = ("classes", float(num_classes or 0), 2.0)
                found.append((loss, measured, message, remedy))
            values = losses.values(loss)
            is_judged |= values is not None
            if values is None or losses.rows.workers.count(loss.worker) > 1:
                continue
            match = recognise(WRONG_LOSSES, state.setdefault("formula", {}), values, loss.value)
            if match is not None:
                formula, expected = match
                measured = (formula.name, loss.value, expected)
                found.append((loss, measured, formula.message, formula.remedy))
        if not is_judged:
            raise Missing(
                "no values of outputs and targets were saved", how_to_save_loss_inputs(step)
            )
        if not found:
            return Passed()
        loss, measured, message, remedy = found[0]
        return finding(self, step, (losses.rows, loss.row), measured, message, remedy=remedy)
