"""Inputs of models whose columns are the targets in another form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy.typing as npt

from rule_runtime.evaluation.loss_inputs import MODEL_INPUT, LossInputs, LossKind
from rule_runtime.evaluation.loss_owners import loss_owners
from rule_runtime.evaluation.told_so_far import Kept, joined, known_columns, told_columns
from rule_runtime.numerics.repeated_rows import is_repeated
from rule_runtime.numerics.telling_columns import Told, as_columns, as_targets, columns_of_all
from rule_runtime.numerics.told_texts import are_masked, are_next, are_seen

if TYPE_CHECKING:
    from rule_runtime.evaluation.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ToldTargets", "losses_of_texts", "told_targets"]

_LABELS: Final = "labels"
_OF_TREES: Final = "input_values"
_REAL: Final = ("float", "bfloat")
_OF_LAYERS: Final = r"_input_[0-9]+$"
_TABLE: Final = 2
_SERIES: Final = 3
_MAX_PAIRS: Final = 8
_OF_FUNCTIONS: Final = ("Loss_output_0", LossKind.LOOKS_LIKE_CLASSES)
_SAME: Final = ("size", "min", "max", "mean", "l2")


class ToldTargets(NamedTuple):
    """Targets that columns of an input tell.

    Attributes:
        at: Row of the input among `step.tensors(regex=(MODEL_INPUT,))`.
        columns: The first column that tells each target.
        targets: Name of the targets.
        num_rows: Rows that show it, of several targets of that with the fewest.
    """

    at: int
    columns: list[int]
    targets: str
    num_rows: int


def told_targets(step: StepView, memory: Memory, rows: int) -> tuple[bool, ToldTargets | None]:
    """Look for inputs whose columns tell targets, in this step as in those before.

    Args:
        step: The step.
        memory: `told_by`: of at most 8 pairs of an input and targets what `joined` keeps of each;
            `rows`, a number that stands for the latest rows of each.
        rows: How many rows must show it.

    Returns:
        Whether any values could be looked at, and the first targets that are told.
    """
    known: dict[str, Kept] = memory.setdefault("told_by", {})
    latest: dict[str, int] = memory.setdefault("rows", {})
    inputs = step.tensors(regex=(MODEL_INPUT,))
    is_judged, found = False, None
    for at, of_targets in _pairs(step, inputs):
        name, worker = inputs.names[at], inputs.workers[at]
        key = f"{worker}/{name}/{of_targets}"
        kept = known.get(key)
        if kept == [] or (kept is None and len(known) >= _MAX_PAIRS):
            continue  # no column is left that could
        values = step.values((name,), worker).get(name)
        if values is None:
            continue  # labels are saved far more often
        told = _telling(values, step.values((of_targets,), worker).get(of_targets), kept)
        if told is None:
            continue
        if len(told) > 1 and _narrowest(step, worker, len(values)) < _in_row(step, of_targets):
            continue  # what is to be rebuilt behind a bottleneck
        if any(one is not None for one in told) and not is_repeated(values, latest, key):
            kept = known[key] = joined(kept, told)
        is_judged = True
        columns, num_rows = told_columns(kept, rows)
        if columns and found is None:
            found = ToldTargets(at, columns, of_targets, num_rows)
    return is_judged, found


def losses_of_texts(step: StepView) -> Iterator[tuple[str, str, bool]]:
    """Yield losses of places of a text, and whether the model sees the answer.

    Args:
        step: The step.

    Yields:
        `next` and the name of a loss whose targets are an input of a model, one place further on;
        `seen`, the name of a loss of classes, and whether its targets stand in an input, which a
        layer is given as it is: a model that shifts or hides parts of its input itself has no such
        layer. Some places of the input must not be asked, or no layer lose sight of them: a text
        that is rebuilt of less than itself may be the target.
    """
    inputs = step.tensors(regex=(MODEL_INPUT,))
    for at, of_targets in _pairs(step, inputs):
        if (inputs.dtypes[at] or "").startswith(_REAL):
            continue  # values are read only where they may be a text
        name, worker = inputs.names[at], inputs.workers[at]
        found = step.values((name, of_targets), worker)
        values, targets = found.get(name), found.get(of_targets)
        if values is None or targets is None or targets.dtype.kind not in "iu":
            continue
        loss = of_targets.replace("_input_1", "_output_0")
        if are_next(values, targets):
            yield "next", loss, True
        kind = LossInputs(step).kind(loss, worker)
        if kind is LossKind.CLASSES or (loss, kind) == _OF_FUNCTIONS:
            is_seen = are_seen(values, targets) and _is_passed_on(step, inputs, at)
            if is_seen and not are_masked(values, targets):
                is_seen = _keep_places(step, worker, values.shape)
            yield "seen", loss, is_seen


def _keep_places(step: StepView, worker: str, shape: tuple[int, ...]) -> bool:
    """Tell whether all that layers are given of the rows [B, L] of an input has its L places."""
    num_rows, length = shape
    rows = step.tensors(regex=(_OF_LAYERS,))
    given = [s or () for s, of in zip(rows.shapes, rows.workers, strict=True) if of == worker]
    is_kept = [length in s or num_rows * length in s for s in given if num_rows in s]
    return num_rows != length and all(is_kept)


def _is_passed_on(step: StepView, inputs: TensorRows, at: int) -> bool:
    """Tell whether a layer is given an input of the model as it is, by its statistics."""
    rows = step.tensors(regex=(_OF_LAYERS,))
    own = [inputs.column(name)[at] for name in _SAME]
    columns = [rows.column(name) for name in _SAME]
    models = set(inputs.names)
    return any(
        name not in models and worker == inputs.workers[at] and [c[row] for c in columns] == own
        for row, (name, worker) in enumerate(zip(rows.names, rows.workers, strict=True))
    )


def _pairs(step: StepView, inputs: TensorRows) -> Iterator[tuple[int, str]]:
    """Yield the rows of inputs of models, and the names of the targets beside them."""
    of_losses = loss_owners(step)
    labels = step.tensors(regex=(f"^{_LABELS}$",)).workers
    weights = step.tensors(collections=("weights",)).names
    for at in sorted(range(len(inputs)), key=lambda at: (inputs.names[at], inputs.workers[at])):
        name, worker = inputs.names[at], inputs.workers[at]
        owner = name.rpartition("_input_")[0]
        is_model = not weights or any(weight.startswith(f"{owner}_") for weight in weights)
        is_model &= (owner, worker) not in of_losses
        for loss, of_worker in of_losses:
            if is_model and of_worker == worker:
                yield at, f"{loss}_input_1"
        if worker in labels and (is_model or name == _OF_TREES):
            yield at, _LABELS


def _narrowest(step: StepView, worker: str, num_rows: int) -> float:
    """Return the fewest numbers in a row [B, ...] that a module is given; infinite if not known."""
    rows = step.tensors(regex=(_OF_LAYERS,))
    return min(
        (
            math.prod(shape[1:])
            for shape, of in zip(rows.shapes, rows.workers, strict=True)
            if of == worker and shape and len(shape) >= _TABLE and shape[0] == num_rows
        ),
        default=math.inf,
    )


def _in_row(step: StepView, name: str) -> int:
    """Return how many numbers a tensor [B, ...] has in a row."""
    shape = step.tensors(regex=(f"^{re.escape(name)}$",)).shapes[0]
    return math.prod((shape or ())[1:])


def _telling(
    values: npt.NDArray[Any], targets: npt.NDArray[Any] | None, kept: Kept | None
) -> list[Told | None] | None:
    """Return what tells each target, of what is kept of those before; None if nothing could."""
    if targets is None or not values.ndim or not targets.ndim:
        return None
    if values.ndim == targets.ndim == _SERIES and values.shape[:2] == targets.shape[:2]:
        values, targets = values.reshape(-1, values.shape[2]), targets.reshape(-1, targets.shape[2])
    # Of the features of trees only the first rows may be saved.
    numbers = as_targets(targets[: len(values)])
    columns = None if numbers is None else as_columns(values, len(numbers))
    if columns is None or numbers is None:
        return None
    known = known_columns(kept, columns.shape[1])
    # Of binary images one element may tell two classes nearly: a 1 from a 0.
    return columns_of_all(columns, numbers, known=known, may_err=values.ndim == _TABLE)
