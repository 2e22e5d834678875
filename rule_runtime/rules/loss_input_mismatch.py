"""LossInputMismatch: losses that do not fit their outputs and targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.loss_formulas import WRONG_LOSSES, recognise
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.facts.class_distances import distances_to_classes
from rule_runtime.facts.loss_contract import LossMismatch, broken_contract, broken_layout
from rule_runtime.facts.losses import (
    INPUT_VALUES,
    LOSS_INPUTS,
    MODEL_OUTPUT_VALUES,
    Loss,
    Losses,
)
from rule_runtime.facts.missing import how_to_save_loss_inputs, missing_loss
from rule_runtime.facts.selection import evidence
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LossInputMismatch"]

_MIN_STEPS: Final = 2
"""Saved steps with values at which scores must be read wrongly."""
_OF_LOGARITHMS: Final = ("KLDivLoss", "NLLLoss")


class LossInputMismatch(Rule):
    """Finds losses that do not fit what they compare, or that are computed by a wrong formula.

    How it decides:
        * Contract: shapes or ranges are not what the loss takes, such as targets outside of 0 to 1
          for BCELoss, or shapes [B, 1] and [B] for MSELoss.
        * Class numbers: a distance compares one output with labels that are numbers of 3 to 32
          classes, each about as frequent.
        * Formula: the loss is recomputed from saved values. It equals a wrong formula of a table,
          such as the mean over all pairs, and no right one.
        * Layout: the loss reads probabilities along the wrong dimension, or scores that `view`
          mixed up.

        The first two fire at `patience` saved training steps in a row, the others at two steps with
        values.

    Parameters:
        samples: Labels to count before they can be numbers of classes.
        patience: Saved steps in a row.
        labels_regex: Regular expressions of tensors that are labels.

    What to try:
        Compare shapes and ranges of outputs and targets with the documentation of the loss.
    """

    samples: Annotated[int, AtLeast(1), Unit("labels")] = 40
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3
    labels_regex: Annotated[tuple[str, ...], Regex()] = ("^labels$",)

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        LOSS_INPUTS,
        INPUT_VALUES,
        MODEL_OUTPUT_VALUES,
        CollectionConfig("labels", {"save_raw_tensor": "True"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with what they are computed from.

        Args:
            step: What was saved at the step.
            memory: What `ClassTallies` keeps; `losses`: of at most 32 losses, streaks and what
                values show.
        """
        if step.mode.name in ("EVAL", "PREDICT"):
            return NotApplicable(f"losses of mode {step.mode.name} are not judged")
        losses = step.fact(Losses)
        if not losses.losses:
            raise missing_loss(step)
        classes = distances_to_classes(step, memory, self.labels_regex, self.samples)
        states = memory.setdefault("losses", {})
        judged, found = False, []
        for loss in losses.losses:
            if loss.key not in states and len(states) >= MAX_SERIES:
                continue
            state = states.setdefault(loss.key, {})
            broken = None
            if loss.key in classes or _is_known(loss):
                judged, broken = True, _broken(loss, classes.get(loss.key))
                num_bad = streak(state, is_bad=broken is not None)
                broken = broken if num_bad >= self.patience else None
            mismatch = _by_values(losses, loss, state) or broken
            found += [(loss, mismatch)] if mismatch else []
        if found:
            loss, mismatch = found[0]
            return IssueFound(evidence(step, losses.rows, loss.row, **mismatch._asdict()))
        how = how_to_save_loss_inputs(step)
        return Passed() if judged else NotEvaluated(f"no inputs of losses were saved: {how}")


def _is_known(loss: Loss) -> bool:
    """Return whether enough was saved of a loss to judge its contract."""
    outputs = loss.outputs
    return outputs is not None and (outputs.shape is not None or loss.owner in _OF_LOGARITHMS)


def _broken(loss: Loss, num_classes: int | None) -> LossMismatch | None:
    """Return what the loss does not take; distances take no numbers of classes."""
    if num_classes is None:
        return broken_contract(loss)
    message = f"is a distance to labels that are numbers of {num_classes} classes"
    remedy = "Use a loss of classes, such as nn.CrossEntropyLoss or multi:softprob."
    return LossMismatch("classes", num_classes, 2.0, message, remedy)


def _by_values(losses: Losses, loss: Loss, state: dict[str, Any]) -> LossMismatch | None:
    """Return what values of outputs and targets, which are saved seldom, show of a loss."""
    values = losses.values(loss)
    if values is None:
        return None
    layout = broken_layout(losses, loss, values)
    if streak(state, is_bad=layout is not None, name="layout") >= _MIN_STEPS:
        return layout
    formula = state.setdefault("formula", {})
    match = recognise(WRONG_LOSSES, formula, values, loss.value) if loss.is_only else None
    if match is None:
        return None
    return LossMismatch(match.name, loss.value, match.expected, match.message, match.remedy)
