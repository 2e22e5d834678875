"""NonFinite and ExplodingTensor: tensors with NaN or infinite elements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import numpy as np

from hook_layer.format.known_collections import SCALAR
from rule_runtime.engine.evidence import ANY_MEASURE
from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import IssueFound, Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import SelectedTensorsRule, saved_every
from rule_runtime.facts.layer_names import place_of
from rule_runtime.facts.logged_scalars import LOGGED_SCALARS, tolerated_scalars
from rule_runtime.facts.loss_operations import Operation, first_not_finite
from rule_runtime.facts.losses import Losses
from rule_runtime.facts.missing import missing_tensors
from rule_runtime.facts.model_inputs import MODEL_INPUT
from rule_runtime.facts.saved_tensors import finite_means, largest_count, num_not_finite
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst

__all__ = ["ExplodingTensor", "NonFinite"]


class _Phase(IntEnum):
    """A part of a step, in execution order."""

    PARAMETERS = 0
    LAYERS = 1
    LOSSES = 2
    GRADIENTS = 3


_Bad: TypeAlias = tuple[_Phase, TensorRows, int]
"""Phase, tensors and row of a tensor that is not finite."""
_REMEDIES: Final = {
    _Phase.PARAMETERS: "An update before this step broke it: lower the learning rate tenfold.",
    _Phase.LAYERS: "Check this layer for a division or a logarithm without an epsilon, or for "
    "values outside the range of half precision.",
    _Phase.LOSSES: "The outputs are finite and the loss is not: add an epsilon to its logarithms "
    "and divisions, and take logsumexp instead of exp.",
    _Phase.GRADIENTS: "The forward pass is finite and the backward pass is not: add an epsilon "
    "to square roots, norms and divisions.",
}
_OF_OPERATION: Final = {
    _Phase.LOSSES: "is the first operation of the loss with such a value",
    _Phase.GRADIENTS: "is the last operation of the loss with such a gradient",
}
_OF_UNKNOWN_LOSS: Final = "Loss_input_"
_OF_SCALAR: Final = (
    "Look where the script computes it: a mean of nothing, a division by zero, a logarithm, or "
    "values that it gets. Log no value where there is none."
)
_IGNORED: Final = "Check how labels and padding are made: -100 marks what must not count."
_OF_LOSS: Final = "Loss_input_0"  # outputs of the model
_INPUTS: Final = "Look for missing values in the data, and for divisions when it is prepared."
_MASK: Final = (
    "A mask of attention holds -inf for what is hidden, never +inf, and hides no whole row: "
    "softmax of such a row is NaN."
)
_TOO_LARGE: Final = "An update was too large: lower the learning rate tenfold."
_OF_MODEL: Final = r"[A-Z]\w*(?<!Loss)$"
"""Name of a model: a class that is no loss."""
_TREES: Final = "trees/"
"""Prefix of XGBoost's tables, in which NaN marks missing fields of leaves."""


class NonFinite(Rule):
    """Detects the first non-finite tensor of a step in execution order.

    How it decides:
        The rule looks for NaN and infinite elements. It reports the first tensor that has any. It
        ignores:
        * infinite inputs and outputs of layers, because masks are infinite, unless the data or a
          mask explains the first NaN;
        * NaN in inputs alone while the loss is finite;
        * gradients that no optimizer used, up to `patience` steps in a row;
        * logged scalars that have never been finite, or are not for less than `logged_patience`
          steps;
        * one of several losses alone, while the gradients are finite.

    If the largest weight grew `max_growth` times just before, an update was too large.

    Parameters:
        patience: Number of consecutive skipped steps that is reported.
        max_growth: Growth of the largest weight between two saved steps.
        logged_patience: Number of consecutive values of a logged scalar that is reported.

    What to try:
        Follow the remedy of the finding: it depends on which tensor was the first.
    """

    # The default loss scale of 65,536 is below 1 after 17 skipped steps.
    patience: Annotated[int, AtLeast(1), Unit("skipped steps")] = 20
    max_growth: Annotated[float, AtLeast(1), Unit("times")] = 100.0
    # A metric may have no value in an epoch or two, as the AUC of one class.
    logged_patience: Annotated[int, AtLeast(1), Unit("steps")] = 3

    collections = saved_every(10, "optimizer_steps", "weights", "gradients", "losses")
    fatal_measures = (ANY_MEASURE,)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Find the first non-finite tensor.

        Memory: `largest`: largest finite weight of the latest saved step; `growth`: its ratio to
        that of the step before; see also `tolerated_scalars`.
        """
        tolerated = tolerated_scalars(step, memory, self.logged_patience)
        phases = list(_phases(step, tolerated))
        _note_growth(step, memory)
        if not tolerated and all(np.isnan(rows.column("nan")).all() for _, rows in phases):
            raise missing_tensors("weights", "losses", "gradients")
        bad = [(phase, rows, at) for phase, rows in phases for at in _not_finite(phase, rows)]
        skipped = largest_count(step, "backward_passes_since") or 0
        is_skipped = 0 < skipped < self.patience
        if not bad or _are_harmless(step, bad, is_skipped=is_skipped):
            return Passed()
        return self._of_first(step, memory, bad, skipped)

    def _of_first(self, step: StepView, memory: Memory, bad: list[_Bad], skipped: float) -> Outcome:
        """Return the finding of the first of the tensors, with what explains it."""
        phase, rows, at = min(bad, key=lambda tensor: (tensor[0], *_place(*tensor[1:])))
        infinite = _infinite_input(rows, at) if phase is _Phase.LAYERS else None
        measure, value, message = _describe(rows, at)
        if len(bad) > 1:
            message += f"; it is the first of {len(bad)} such tensors"
        if phase is _Phase.GRADIENTS and skipped:
            message += f"; {skipped:,.0f} steps in a row were skipped"
        measured = measure, value, 0.0
        phase, operation = _operation(step, rows, at, phase)
        message += f"; {operation.name} {_OF_OPERATION[phase]}" if operation else ""
        remedy = _OF_SCALAR if rows.names[at].startswith(SCALAR) else _REMEDIES[phase]
        if (growth := memory.get("growth", 0.0)) > self.max_growth:
            message += f"; the largest weight grew {growth:.2g} times in the steps before"
            measured, remedy = ("growth", growth, self.max_growth), _TOO_LARGE
        if phase is not _Phase.PARAMETERS and (empty := _loss_of_nothing(step)):
            message += f"; all targets of {empty} are negative, so it ignores them"
            measured, remedy = ("ignored_targets", value, 0.0), _IGNORED
        elif phase is _Phase.LAYERS and _is_of_data(bad, rows.names[at]):
            measured, remedy = (f"{measure}_in_inputs", value, 0.0), _INPUTS
        elif infinite is not None and measured[0] == measure:
            message = f"{_describe(rows, infinite)[-1]}, of {rows.names[at]} {message}"
            at, is_mask = infinite, place_of(rows.names[infinite]).number > 0
            of, remedy = ("inf_of_mask", _MASK) if is_mask else ("inf_in_inputs", _INPUTS)
            measured = of, float(rows.column("inf")[at]), 0.0
        found = finding(self, step, (rows, at), measured, message, remedy=remedy)
        lines = {"tensor": operation.line} if operation and operation.line else None
        return IssueFound(replace(found.evidence, lines=lines))


def _operation(
    step: StepView, rows: TensorRows, at: int, phase: _Phase
) -> tuple[_Phase, Operation | None]:
    """Return the operation of an unknown loss that made a tensor not finite, and its phase."""
    if phase is _Phase.GRADIENTS:
        return phase, first_not_finite(step, rows.workers[at], "gradient")
    if phase is not _Phase.LOSSES and not rows.names[at].startswith(_OF_UNKNOWN_LOSS):
        return phase, None
    operation = first_not_finite(step, rows.workers[at], "value")
    return (phase if operation is None else _Phase.LOSSES), operation


def _loss_of_nothing(step: StepView) -> str | None:
    """Return the name of a loss that ignores all targets; None if there is none."""
    return next((of.name for of in step.fact(Losses).losses if of.is_of_nothing), None)


def _note_growth(step: StepView, memory: Memory) -> None:
    """Compare the largest weight with that of the saved step before."""
    rows = step.tensors(collections=("weights",))
    sizes = np.maximum(np.abs(rows.column("min")), np.abs(rows.column("max")))
    largest = float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
    if largest > 0:
        memory["growth"] = largest / memory.get("largest", largest)
        memory["largest"] = largest


def _is_of_data(bad: list[_Bad], first: str) -> bool:
    """Return whether the first bad tensor is data: an input, as one of the model or a target."""
    names = (rows.names[at] for _, rows, at in bad)
    is_given = any(re.search(MODEL_INPUT, of) and not of.endswith(_OF_LOSS) for of in names)
    return is_given and re.search(r"_input_\d+$", first) is not None


def _infinite_input(rows: TensorRows, at: int) -> int | None:
    """Return the row of an infinite input that explains a NaN; None if none.

    It is the first input of the model, or a mask: a later input, with finite values of 0 or 1, of
    the module that computed the NaN. For a NaN input, that is the module around it or the model.
    """
    module, kind, _ = place_of(rows.names[at])
    owner = module.rpartition(".")[0] if kind == "input" else module
    finite = np.nan_to_num([rows.column("min"), rows.column("max")], posinf=0, neginf=0)
    is_mask = np.all(np.isin(finite, (0, 1)), axis=0)
    for row in map(int, np.flatnonzero(rows.column("inf") > 0)):
        of = place_of(rows.names[row])
        is_owner = of.module == owner if owner and of.number else re.match(_OF_MODEL, of.module)
        is_cause = is_owner and of.kind == "input" and (is_mask[row] or not of.number)
        if is_cause and rows.workers[row] == rows.workers[at]:
            return row
    return None


def _phases(step: StepView, ignored: set[str]) -> Iterator[tuple[_Phase, TensorRows]]:
    """Yield the tensors of each phase, without ignored ones."""
    losses = step.tensors(collections=("losses", "metrics", "predictions"), regex=LOGGED_SCALARS)
    losses = losses.select([name not in ignored for name in losses.names])
    gradients = step.tensors(collections=("gradients",))
    layers = step.tensors(regex=(r"_(input|output)_\d+$",))
    others = {*losses.names, *ignored, *gradients.names}
    parameters = step.tensors(collections=("weights", "biases", "optimizer_variables"))
    yield _Phase.PARAMETERS, parameters
    yield _Phase.LAYERS, layers.select([name not in others for name in layers.names])
    yield _Phase.LOSSES, losses
    yield _Phase.GRADIENTS, gradients


def _not_finite(phase: _Phase, rows: TensorRows) -> list[int]:
    """Return the rows with NaN, or with infinite elements unless these may be masks."""
    counts = np.nan_to_num(rows.column("nan")) if phase is _Phase.LAYERS else num_not_finite(rows)
    return [int(at) for at in np.flatnonzero(counts > 0)]


def _place(rows: TensorRows, at: int) -> tuple[int, str]:
    """Return the position among the worker's tensors, which is the execution order."""
    return at - rows.workers.index(rows.workers[at]), rows.workers[at]


def _are_harmless(step: StepView, bad: list[_Bad], *, is_skipped: bool) -> bool:
    """Return whether the model masks or the script skips all non-finite tensors."""
    phases = {phase for phase, _, _ in bad}
    if phases == {_Phase.GRADIENTS}:
        return is_skipped
    if not np.isfinite(finite_means(step.tensors(collections=("losses",)))).any():
        return False
    if phases == {_Phase.LOSSES}:
        return bool((step.tensors(collections=("gradients",)).column("l2") > 0).any())
    return all(re.search(r"_input_\d+$", rows.names[at]) for _, rows, at in bad)


class ExplodingTensor(SelectedTensorsRule):
    """Detects tensors with NaN or infinite elements.

    How it decides:
        The rule counts NaN and infinite elements. It reports the tensor with the largest share of
        them. Finite values never count, however large they are. The tables of XGBoost's trees are
        ignored unless you select them.

    Parameters:
        collection_names: Collections to evaluate; by default all saved tensors.
        tensor_regex: Regular expressions of tensors to evaluate.
        only_nan: True to ignore infinite elements.

    What to try:
        Lower the learning rate tenfold. NonFinite names what was the first in the step.
    """

    must_select = False

    only_nan: bool = False

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Find tensors with non-finite elements."""
        rows = self.evaluated_tensors(step)
        num_nan = rows.column("nan")
        num_bad = num_nan if self.only_nan else num_nan + np.nan_to_num(rows.column("inf"))
        if np.isnan(num_bad).all():
            raise Missing("no selected tensor was saved with values", step.how_to_save(rows.names))
        is_bad = num_bad > 0
        if not (self.collection_names or self.tensor_regex):
            is_bad &= [not name.startswith(_TREES) for name in rows.names]
        if not is_bad.any():
            return Passed()
        size = rows.column("size")
        share = np.where(is_bad, num_bad / np.where(size > 0, size, np.inf), np.nan)
        at = worst(rows, share, largest=True)
        measure, value, message = _describe(rows, at)
        return finding(self, step, (rows, at), (measure, value, 0.0), message)


def _describe(rows: TensorRows, at: int) -> tuple[str, float, str]:
    """Return the non-finite elements of a row: name of the count, the count, and a message."""
    measure, noun = ("nan", "NaN") if rows.column("nan")[at] > 0 else ("inf", "infinite")
    count, size = float(rows.column(measure)[at]), rows.column("size")[at]
    of_size = "" if np.isnan(size) else f" of {int(size)}"
    return measure, count, f"{int(count)}{of_size} elements are {noun}"
