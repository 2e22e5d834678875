"""LossInputMismatch: losses that do not fit their outputs and targets."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.class_numbers import add_labels, num_classes
from rule_runtime.detectors.loss_formulas import WRONG_LOSSES, recognise
from rule_runtime.detectors.score_layout import are_scrambled, normalised_axis
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.facts.loss import MODEL_OUTPUT_VALUES, Loss, LossFacts
from rule_runtime.facts.loss_contract import LossMismatch, broken_contract
from rule_runtime.facts.loss_inputs import INPUT_VALUES, LOSS_INPUTS
from rule_runtime.facts.selection import evidence
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LossInputMismatch"]

_NO_DISTANCE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE|KLDiv|CTC|Poisson|Gaussian|Hinge|Multi|Margin|Cosine|Triplet)"
)
_DISTANCES_OF_TREES: Final = re.compile(r"^train-(rmse|mae|mphe|rmsle)$")
_OF_CLASSES: Final = ("KLDivLoss", "Loss")
_OF_LOGARITHMS: Final = ("KLDivLoss", "NLLLoss")
_MAX_TENSORS: Final = 4
"""Tensors of labels and targets whose classes are counted."""
_MAX_COORDINATES: Final = 8
"""Columns of targets that are whole numbers because they are places, such as corners of boxes."""
_MIN_STEPS: Final = 2
"""Saved steps with values at which scores must be read wrongly."""
_SAME: Final = 1e-5
"""Relative error of equal statistics."""


class LossInputMismatch(Rule):
    """Finds losses that do not fit what they compare, or that are computed by a wrong formula.

    How it decides:
        * Contract: shapes and ranges of outputs and targets are not those that the loss takes, such
          as targets outside of 0 to 1 for BCELoss, or shapes [B, 1] and [B] for MSELoss.
        * Class numbers: a distance compares one output with labels that are numbers of 3 to 32
          classes, each about as frequent.
        * Formula: the loss is recomputed from saved values. It equals a wrong formula of a table,
          such as the mean over all pairs, at the first saved step with values and at another one,
          and no right formula.
        * Layout: the loss reads probabilities that sum to 1 along another dimension than 1, or
          scores that `view` mixed up.

        It fires for contracts and class numbers at `patience` saved training steps in a row, for
        formulas and layout at two steps with values.

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
        CollectionConfig("labels", {"include_regex": "^labels$", "save_raw_tensor": "True"}),
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
        of_trees = any(_DISTANCES_OF_TREES.match(loss.name) for loss in facts.losses)
        if not (labels and of_trees) and not any(_is_known(loss) for loss in facts.losses):
            return NotEvaluated(facts.why_no_inputs())
        before, streaks = memory.get("streaks", {}), {}
        found: list[tuple[Loss, LossMismatch]] = []
        for loss in facts.losses[:MAX_SERIES]:
            broken = broken_contract(loss) or _distance_to_classes(loss, labels)
            streaks[loss.key] = before.get(loss.key, 0) + 1 if broken else 0
            if streaks[loss.key] < self.patience:
                broken = None
            mismatch = _by_values(facts, loss, memory) or broken
            found += [(loss, mismatch)] if mismatch else []
        memory["streaks"] = streaks
        return _finding(step, facts, *found[0]) if found else Passed()

    def _class_labels(self, step: StepView, facts: LossFacts, memory: Memory) -> list[_Labels]:
        """Count labels and targets of distances; return those that are numbers of classes."""
        targets = [f"^{re.escape(of.owner)}_input_1$" for of in facts.losses if _is_distance(of)]
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
                found.append(_Labels(worker, classes, tuple(known)))
        return found


class _Labels(NamedTuple):
    """Labels that are numbers of classes: size, minimum, maximum and mean at this step."""

    worker: str
    num_classes: int
    statistics: tuple[float, ...]


def _is_known(loss: Loss) -> bool:
    """Tell whether enough was saved of a loss to judge its contract."""
    outputs = loss.outputs
    return outputs is not None and (outputs.shape is not None or loss.owner in _OF_LOGARITHMS)


def _is_distance(loss: Loss) -> bool:
    """Tell whether a loss may compare each output with its own target, by its name."""
    return bool(loss.owner) and not _NO_DISTANCE.match(loss.name)


def _distance_to_classes(loss: Loss, labels: list[_Labels]) -> LossMismatch | None:
    """Return what is wrong if the targets of a distance are numbers of classes."""
    outputs, targets = loss.outputs, loss.targets
    of_tree = _DISTANCES_OF_TREES.match(loss.name) is not None
    for of in labels:
        if outputs is not None and targets is not None and _is_distance(loss):
            statistics = (targets.size, targets.low, targets.high, targets.mean)
            pairs = zip(statistics, of.statistics, strict=True)
            is_same = all(math.isclose(a, b, rel_tol=_SAME) for a, b in pairs)
            columns = math.prod((targets.shape or ())[1:])
            is_place = 1 < columns <= _MAX_COORDINATES
            is_class = is_same and targets.low >= 0 and targets.high < of.num_classes
            is_class &= outputs.size == targets.size and not is_place
        else:
            is_class = of_tree
        if is_class and of.worker == loss.worker:
            message = f"is a distance to labels that are numbers of {of.num_classes} classes"
            remedy = "Use a loss of classes, such as nn.CrossEntropyLoss or multi:softprob."
            return LossMismatch("classes", of.num_classes, 2.0, message, remedy)
    return None


def _by_values(facts: LossFacts, loss: Loss, memory: Memory) -> LossMismatch | None:
    """Return what values of outputs and targets, which are saved seldom, tell of a loss."""
    values = facts.values(loss)
    states = memory.setdefault("values", {})
    if values is None or (loss.key not in states and len(states) >= MAX_SERIES):
        return None
    state = states.setdefault(loss.key, {})
    layout = _wrong_layout(facts, loss, values.outputs)
    state["layout"] = min(state.get("layout", 0) + 1, _MIN_STEPS) if layout else 0
    if state["layout"] >= _MIN_STEPS:
        return layout
    match = recognise(WRONG_LOSSES, state, values, loss.value) if loss.is_only else None
    if match is None:
        return None
    return LossMismatch(match.name, loss.value, match.expected, match.message, match.remedy)


def _wrong_layout(facts: LossFacts, loss: Loss, outputs: Any) -> LossMismatch | None:
    """Return what is wrong if a loss of classes reads another dimension than that of classes."""
    if not (loss.kind.is_of_classes or loss.owner in _OF_CLASSES):
        return None
    shape, axis = list(outputs.shape), normalised_axis(outputs)
    if axis is not None:
        message = f"gets probabilities {shape} that sum to 1 along dimension {axis}, not 1"
        remedy = "Give the softmax the dimension of the classes: dim=1."
        return LossMismatch("axis", float(axis), 1.0, message, remedy)
    written = facts.model_output(loss) if loss.kind.is_of_classes else None
    if written is None or not are_scrambled(written, outputs):
        return None
    message = f"gets scores {shape} that the model returns as {list(written.shape)}, and a view "
    message += "mixed classes and places"
    remedy = "Move the dimension of the classes by transpose or permute, not by view or reshape."
    return LossMismatch("order", float(len(outputs)), 0.0, message, remedy)


def _finding(step: StepView, facts: LossFacts, loss: Loss, mismatch: LossMismatch) -> IssueFound:
    return IssueFound(evidence(step, facts.rows, loss.row, **mismatch._asdict()))
