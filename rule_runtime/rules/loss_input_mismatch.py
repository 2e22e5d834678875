"""LossInputMismatch: wrong loss formulas, and distances to class numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias

import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.loss_formulas import WRONG_LOSSES, is_opposite, negated, recognise
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.baseline import constant_loss, targets_of
from rule_runtime.facts.class_labels import ClassTallies, class_labels
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.losses import INPUT_VALUES, RELATIVE_ERROR, Input, Loss, Losses, described
from rule_runtime.facts.missing import missing_loss
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView

__all__ = ["LossInputMismatch"]

_OF_TREES: Final = re.compile(r"^train-(rmse|mae|mphe|rmsle)$")
"""Metrics of XGBoost that are distances."""
_LEAST_SHARE: Final = 0.1
"""Share of the minimised sum below which other terms outweigh a loss."""
_OUTWEIGHED_STEPS: Final = 20
"""Saved steps in a row at which it is that small, and no better than half a constant output."""
_LESS_PENALTY: Final = (
    "Lower the weight of the other terms, or reduce all terms in the same way: a sum over elements "
    "outweighs a mean."
)
_OTHER_SIGN: Final = "Change the sign of the loss: minimise 1 - score, not a score."
Measured: TypeAlias = tuple[str, float, float]
"""Name of a measure, its value and its threshold."""
Values: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Outputs and targets."""
_NO_DISTANCE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE|KLDiv|CTC|Poisson|Gaussian|Hinge|Multi|Margin|Cosine|Triplet)"
)


class LossInputMismatch(Rule):
    """Detects wrong loss formulas, and distance losses for class numbers.

    How it decides:
        The rule reports:
        * a loss that equals a wrong formula, such as the mean over all pairs;
        * a loss of the script's own that has the wrong sign;
        * a distance, such as MSELoss, between one output and the numbers of 3 to 32 classes, at
          `patience` saved training steps in a row.

        A loss function is advice if it is less than a tenth of the minimised sum for 20 saved steps
        and hardly better than a constant output: a penalty outweighs it.

    Parameters:
        samples: Labels to count before they can be class numbers.
        patience: Saved steps in a row.
        labels_regex: Regular expressions of tensors that are labels.

    What to try:
        Compare the formula of the loss with its documentation. Use a loss of classes for classes.
        Lower the weight of a penalty.
    """

    samples: Annotated[int, AtLeast(1), Unit("labels")] = 40
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3
    labels_regex: Annotated[tuple[str, ...], Regex()] = ("^labels$",)

    collections = (
        *saved_every(10, "losses", "loss_inputs"),
        INPUT_VALUES,
        CollectionConfig("labels", {"save_raw_tensor": "True"}),
    )
    only_training = "losses of mode {} are not evaluated"

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare losses with their outputs and targets.

        Memory: The state of `ClassTallies`; `losses`: streaks and matching formulas of at most 32
        losses.
        """
        losses = step.fact(Losses)
        if not losses.losses:
            raise missing_loss(step)
        classes = _distances_to_classes(step, memory, self.labels_regex, self.samples)
        states = memory.setdefault("losses", {})
        is_judged, found, advice = bool(classes), [], ""
        for loss in losses.losses:
            if loss.key not in states and len(states) >= MAX_SERIES:
                continue
            state, row = states.setdefault(loss.key, {}), (losses.rows, loss.row)
            num_classes = classes.get(loss.key)
            is_seen = num_classes is not None or loss.outputs is not None
            # Labels of boosted trees are saved only in a few rounds.
            if is_seen and streak(state, is_bad=num_classes is not None) >= self.patience:
                message = f"is a distance to labels that are numbers of {num_classes} classes"
                remedy = "Use a loss of classes, such as nn.CrossEntropyLoss or multi:softprob."
                measured = ("classes", float(num_classes or 0), 2.0)
                found.append(finding(self, step, row, measured, message, remedy=remedy))
            values = losses.values(loss)
            is_judged |= values is not None or bool(loss.standard)
            is_alone = losses.rows.workers.count(loss.worker) == 1
            wrong = _wrong_formulas(loss, values, state, is_alone=is_alone)
            found += [finding(self, step, row, of, text, remedy=how) for of, text, how in wrong]
            advice = advice or _outweighed(step, loss, state)
        if not is_judged and not found:
            names = step.tensors(collections=("loss_inputs", "labels", "input_values")).names
            reason = "no values of outputs and targets were saved"
            raise Missing(reason, step.how_to_save(names, advice_of(step).loss_inputs))
        return found[0] if found else Passed(advice)


def _wrong_formulas(
    loss: Loss, values: Values | None, state: dict[str, Any], *, is_alone: bool
) -> Iterator[tuple[Measured, str, str]]:
    """Yield measure, finding and remedy of the mistakes in the formula of a loss.

    Args:
        loss: The loss.
        values: Values of its outputs and targets; None if they are unknown.
        state: JSON state of this loss, changed in place.
        is_alone: Whether the worker saved no other loss, such as that of an adversary.
    """
    match = (
        is_alone
        and values
        and recognise(WRONG_LOSSES, state.setdefault("formula", {}), values, loss.value)
    )
    if match:
        formula, expected = match
        yield (formula.name, loss.value, expected), formula.message, formula.remedy
    if not loss.standard or not is_alone:
        return
    name = negated(loss.value, loss.standard)
    if streak(state, is_bad=bool(name), name="negated") > 1:
        message = f"is minus {name}, so training makes the outputs worse"
        yield ("sign", loss.value, -loss.value), message, _OTHER_SIGN
    are_shares = all(of and of.low >= 0 and of.high <= 1 for of in (loss.outputs, loss.targets))
    history = state.setdefault("directions", [])
    if are_shares and is_opposite(history, loss.value, loss.correlation):
        message = "falls while the outputs become the opposite of the targets: its sign is wrong"
        yield ("correlation", loss.correlation, 0.0), message, _OTHER_SIGN


def _outweighed(step: StepView, loss: Loss, state: dict[str, Any]) -> str:
    """Return advice if other terms outweigh a loss that learns little, else ""."""
    if math.isnan(loss.minimised):
        return ""
    targets = targets_of(step, loss.name, loss.worker, loss.value)
    constant = constant_loss(loss.name, targets) if targets else 0.0
    is_bad = 0 < loss.value < _LEAST_SHARE * loss.minimised and loss.value > constant / 2 > 0
    if streak(state, is_bad=is_bad, name="outweighed") < _OUTWEIGHED_STEPS:
        return ""
    numbers = f"is {loss.value:.2g} of the {loss.minimised:.3g} that is minimised"
    what = f"a constant output has {constant:.2g}, so other terms outweigh it"
    return f"{loss.name}: {numbers}, and {what}. {_LESS_PENALTY}"


def _distances_to_classes(
    step: StepView, memory: Memory, labels_regex: tuple[str, ...], min_labels: int
) -> dict[str, int]:
    """Count labels and targets; return the number of classes for each distance to class numbers.

    The distance must compare one output with each label. There must be enough labels, of 3 to 32
    about equally frequent classes. Targets match labels if their statistics are equal. The result
    has the number of classes by the loss's key.

    Memory: the state of `ClassTallies`.
    """
    losses = [loss for loss in step.fact(Losses).losses if _is_distance(loss)]
    owners = sorted({loss.owner for loss in losses} - {""})
    regex = (*labels_regex, *(f"^{re.escape(owner)}_input_1$" for owner in owners))
    tallies = ClassTallies(memory)
    tallies.add(step.mode, class_labels(step, regex)[0])
    found = {}
    for (name, worker), labels in described(step.tensors(regex=regex)).items():
        num_classes = tallies.of(step.mode, name).num_balanced_classes(min_labels)
        for loss in losses if num_classes else ():
            is_of_labels = _OF_TREES.match(loss.name) or _has_targets(loss, labels)
            if loss.worker == worker and is_of_labels:
                found[loss.key] = num_classes or 0
    return found


def _is_distance(loss: Loss) -> bool:
    """Return whether a loss may compare each output with its own target, by its name."""
    is_tree = _OF_TREES.match(loss.name) is not None
    return is_tree or (bool(loss.owner) and not _NO_DISTANCE.match(loss.name))


def _has_targets(loss: Loss, labels: Input) -> bool:
    """Return whether a loss compares single outputs with targets that equal some labels."""
    outputs, targets = loss.outputs, loss.targets
    if outputs is None or targets is None or outputs.size != targets.size:
        return False
    is_one_column = math.prod((targets.shape or ())[1:]) == 1
    ends = (targets.size, targets.low, targets.high)
    is_same = ends == (labels.size, labels.low, labels.high)
    is_same &= math.isclose(targets.mean, labels.mean, rel_tol=RELATIVE_ERROR)
    return is_one_column and is_same
