"""LossInputMismatch: losses that do not fit their outputs and targets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.class_numbers import add_labels, num_classes
from rule_runtime.detectors.loss_formulas import WRONG_LOSSES, recognise
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.facts.class_distances import (
    DISTANCES_OF_TREES,
    ClassLabels,
    distance_to_classes,
    is_distance,
)
from rule_runtime.facts.loss import MODEL_OUTPUT_VALUES, Loss, LossFacts
from rule_runtime.facts.loss_contract import LossMismatch, broken_contract, broken_layout
from rule_runtime.facts.loss_inputs import INPUT_VALUES, LOSS_INPUTS
from rule_runtime.facts.selection import evidence
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LossInputMismatch"]

_OF_LOGARITHMS: Final = ("KLDivLoss", "NLLLoss")
_MAX_TENSORS: Final = 4
"""Tensors of labels and targets whose classes are counted."""
_MIN_STEPS: Final = 2
"""Saved steps with values at which scores must be read wrongly."""


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
            memory: `labels`: counts of classes; `streaks`: saved steps in a row with a mismatch;
                `values`: what values tell about each of at most 32 losses.
        """
        facts = step.fact(LossFacts)
        labels = self._class_labels(step, facts, memory)
        if step.mode.name in ("EVAL", "PREDICT"):
            return NotApplicable(f"losses of mode {step.mode.name} are not judged")
        facts.require_losses()
        of_trees = any(DISTANCES_OF_TREES.match(loss.name) for loss in facts.losses)
        if not (labels and of_trees) and not any(_is_known(loss) for loss in facts.losses):
            return NotEvaluated(facts.why_no_inputs())
        before, streaks = memory.get("streaks", {}), {}
        found: list[tuple[Loss, LossMismatch]] = []
        for loss in facts.losses[:MAX_SERIES]:
            broken = broken_contract(loss) or distance_to_classes(loss, labels)
            streaks[loss.key] = before.get(loss.key, 0) + 1 if broken else 0
            if streaks[loss.key] < self.patience:
                broken = None
            mismatch = _by_values(facts, loss, memory) or broken
            found += [(loss, mismatch)] if mismatch else []
        memory["streaks"] = streaks
        return _finding(step, facts, *found[0]) if found else Passed()

    def _class_labels(self, step: StepView, facts: LossFacts, memory: Memory) -> list[ClassLabels]:
        """Count labels and targets of distances; return those that are numbers of classes."""
        targets = [f"^{re.escape(of.owner)}_input_1$" for of in facts.losses if is_distance(of)]
        rows = step.tensors(regex=(*self.labels_regex, *targets))
        tallies = memory.setdefault("labels", {})
        statistics = [rows.column(of).tolist() for of in ("size", "min", "max", "mean")]
        found = []
        for worker, name, *known in sorted(zip(rows.workers, rows.names, *statistics, strict=True)):
            key = f"{worker}/{name}"
            if key not in tallies and len(tallies) >= _MAX_TENSORS:
                continue
            tally = tallies.setdefault(key, {})
            for values in step.values((name,), worker).values():
                add_labels(tally, values)
            classes = num_classes(tally, self.samples)
            if classes is not None:
                found.append(ClassLabels(worker, classes, tuple(known)))
        return found


def _is_known(loss: Loss) -> bool:
    """Tell whether enough was saved of a loss to judge its contract."""
    outputs = loss.outputs
    return outputs is not None and (outputs.shape is not None or loss.owner in _OF_LOGARITHMS)


def _by_values(facts: LossFacts, loss: Loss, memory: Memory) -> LossMismatch | None:
    """Return what values of outputs and targets, which are saved seldom, tell of a loss."""
    values = facts.values(loss)
    states = memory.setdefault("values", {})
    if values is None or (loss.key not in states and len(states) >= MAX_SERIES):
        return None
    state = states.setdefault(loss.key, {})
    layout = broken_layout(facts, loss, values)
    state["layout"] = min(state.get("layout", 0) + 1, _MIN_STEPS) if layout else 0
    if state["layout"] >= _MIN_STEPS:
        return layout
    match = recognise(WRONG_LOSSES, state, values, loss.value) if loss.is_only else None
    if match is None:
        return None
    return LossMismatch(match.name, loss.value, match.expected, match.message, match.remedy)


def _finding(step: StepView, facts: LossFacts, loss: Loss, mismatch: LossMismatch) -> IssueFound:
    return IssueFound(evidence(step, facts.rows, loss.row, **mismatch._asdict()))
