"""Inputs of models whose columns are the targets in another form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy.typing as npt

from rule_runtime.evaluation.loss_inputs import MODEL_INPUT, LossInputs, LossKind
from rule_runtime.evaluation.loss_owners import loss_owners
from rule_runtime.evaluation.told_so_far import Kept, joined, known_columns, told_columns
from rule_runtime.numerics.repeated_rows import are_new
from rule_runtime.numerics.telling_columns import (
    Told,
    are_targets,
    as_columns,
    as_targets,
    columns_of_all,
)
from rule_runtime.numerics.told_texts import are_masked, are_next, are_seen, is_source

if TYPE_CHECKING:
    from rule_runtime.evaluation.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ToldTargets", "losses_of_texts", "told_targets"]

_LABELS: Final = "labels"
_OF_TREES: Final = "input_values"
_REAL: Final = ("float", "bfloat")
_OF_LAYERS: Final = r"_input_[0-9]+$"
_FIRST_INPUTS: Final = r"_input_0$"
_OF_MODELS: Final = r"^[A-Z]\w*_output_[0-9]+$"
_OF_TIMES: Final = "/times"
_TABLE: Final = 2
_SERIES: Final = 3
_MAX_PAIRS: Final = 8
_OF_FUNCTIONS: Final = ("Loss_output_0", LossKind.LOOKS_LIKE_CLASSES)
_SAME: Final = ("size", "min", "max", "mean", "l2")


class ToldTargets(NamedTuple):
    """Targets that columns of an input tell.

    Attributes:
        at: Row of the input among `step.tensors(regex=(MODEL_INPUT,))`.
        columns: The first column that tells each target alone, else all that do together.
        targets: Name of the targets.
        num_rows: Rows that show it, of several targets of that with the fewest.
        is_together: Whether not each of the columns tells a target alone.
    """

    at: int
    columns: list[int]
    targets: str
    num_rows: int
    is_together: bool


class _View(NamedTuple):
    """Rows of an input, and the targets of each.

    Attributes:
        key: Which view it is.
        values: The input [B, ...].
        targets: The targets [B, ...].
        in_row: How many rows stand for one of the input as it was.
        are_classes: Whether whole numbers among the targets are classes.
    """

    key: str
    values: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    in_row: int
    are_classes: bool = False


def told_targets(step: StepView, memory: Memory, rows: int) -> tuple[bool, ToldTargets | None]:
    """Look for inputs whose columns tell targets, in this step as in those before.

    Args:
        step: The step.
        memory: `kept`: of at most 8 pairs of an input and targets what `joined` keeps of each;
            `seen`: numbers that stand for the rows of each that counted.
        rows: How many rows must show it.

    Returns:
        Whether any values could be looked at, and the first targets that are told.
    """
    known: dict[str, Kept] = memory.setdefault("kept", {})
    seen: dict[str, list[int]] = memory.setdefault("seen", {})
    inputs = step.tensors(regex=(MODEL_INPUT,))
    is_judged, found = False, None
    for at, of_targets, key, view in _looked_at(step, inputs, known):
        # Only of rows that were told something is remembered that they were there.
        now = [*seen.get(key, ())]
        told = _telling(view, known.get(key), now)
        if told is None:
            continue
        narrowest = _narrowest(step, inputs.workers[at], len(view.values) // view.in_row)
        if len(told) > 1 and narrowest < _in_row(step, of_targets):
            continue  # what is to be rebuilt behind a bottleneck
        if any(one is not None for one in told):
            known[key] = joined(known.get(key), told)
            seen[key] = now if known[key] else []
        is_judged = True
        columns, num_rows, is_together = told_columns(known.get(key), rows)
        if columns and found is None:
            found = ToldTargets(at, columns, of_targets, num_rows, is_together)
    return is_judged, found


def _looked_at(
    step: StepView, inputs: TensorRows, known: dict[str, Kept]
) -> Iterator[tuple[int, str, str, _View]]:
    """Yield the row of an input, the name of targets, what their view is called, and the view."""
    for at, of_targets in _pairs(step, inputs):
        name, worker = inputs.names[at], inputs.workers[at]
        pair = f"{worker}/{name}/{of_targets}"
        before = [known[key] for key in (pair, pair + _OF_TIMES) if key in known]
        if before and not any(before):
            continue  # no column is left that could
        values = step.values((name,), worker).get(name)
        if values is None or _is_of_other(step, name, worker, of_targets):
            continue  # labels are saved far more often than values
        kind = LossInputs(step).kind(of_targets.replace("_input_1", "_output_0"), worker)
        for view in _views(values, step.values((of_targets,), worker).get(of_targets)):
            key = pair + view.key
            if known.get(key) != [] and (key in known or len(known) < _MAX_PAIRS):
                yield at, of_targets, key, view._replace(are_classes=kind.is_of_classes)


def losses_of_texts(step: StepView) -> dict[str, float]:
    """Return losses of places of a text, and whether the model sees the answer.

    Args:
        step: The step.

    Returns:
        1 for `next/{loss}` if its targets are an input of a model, one place further on, and there
        is no other input that they may follow from;
        for `seen/{loss}`, of classes, 1 if its targets stand in an input, which a layer is given
        first as it is, else 0: a model that shifts or hides parts of it itself has no such layer.
        Some places of the input must not be asked, or no layer lose sight of them: a text that is
        rebuilt of less than itself may be the target.
    """
    inputs = step.tensors(regex=(MODEL_INPUT,))
    found: dict[str, float] = {}
    for at, of_targets in _pairs(step, inputs):
        if (inputs.dtypes[at] or "").startswith(_REAL):
            continue  # values are read only where they may be a text
        name, worker = inputs.names[at], inputs.workers[at]
        both = step.values((name, of_targets), worker)
        values, targets = both.get(name), both.get(of_targets)
        if values is None or targets is None or targets.dtype.kind not in "iu":
            continue
        loss = of_targets.replace("_input_1", "_output_0")
        if are_next(values, targets) and not _has_source(step, inputs, at, values, targets):
            found[f"next/{loss}"] = 1.0
        kind = LossInputs(step).kind(loss, worker)
        if kind is LossKind.CLASSES or (loss, kind) == _OF_FUNCTIONS:
            is_seen = are_seen(values, targets) and _is_among(step, inputs, at, _FIRST_INPUTS)
            if is_seen and not are_masked(values, targets):
                is_seen = _keep_places(step, worker, values.shape)
            found[f"seen/{loss}"] = max(found.get(f"seen/{loss}", 0.0), float(is_seen))
    return found


def _keep_places(step: StepView, worker: str, shape: tuple[int, ...]) -> bool:
    """Tell whether all that layers are given of the rows [B, L] of an input has its L places."""
    num_rows, length = shape
    rows = step.tensors(regex=(_OF_LAYERS,))
    given = [s or () for s, of in zip(rows.shapes, rows.workers, strict=True) if of == worker]
    is_kept = [length in s or num_rows * length in s for s in given if num_rows in s]
    return num_rows != length and all(is_kept)


def _is_among(step: StepView, inputs: TensorRows, at: int, regex: str) -> bool:
    """Tell whether an input of a model is such a tensor of others, by its statistics."""
    rows = step.tensors(regex=(regex,))
    itself = f"{inputs.names[at].rpartition('_input_')[0]}_"
    own = [inputs.column(name)[at] for name in _SAME]
    columns = [rows.column(name) for name in _SAME]
    models = set(inputs.names)
    return any(
        [c[row] for c in columns] == own and worker == inputs.workers[at] and name not in models
        for row, (name, worker) in enumerate(zip(rows.names, rows.workers, strict=True))
        if not name.startswith(itself)
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


def _has_source(step: StepView, inputs: TensorRows, at: int, *text: npt.NDArray[Any]) -> bool:
    """Tell whether a model is given, and none made, what a text and its targets may follow from."""
    of_losses, worker = loss_owners(step), inputs.workers[at]
    return any(
        other != at
        and inputs.workers[other] == worker
        and (name.rpartition("_input_")[0], worker) not in of_losses
        and not _is_among(step, inputs, other, _OF_MODELS)
        and is_source(step.values((name,), worker).get(name), *text)
        for other, name in enumerate(inputs.names)
    )


def _is_of_other(step: StepView, name: str, worker: str, of_targets: str) -> bool:
    """Tell whether a loss compares what the model with this input did not return.

    What was only scaled, or normalised, has as many numbers as what the model returned.
    """
    owner = re.escape(name.rpartition("_input_")[0])
    compared = re.escape(of_targets.removesuffix("_input_1"))
    sizes = {}
    for of, regex in ((owner, f"^{owner}_output_[0-9]+$"), (compared, f"^{compared}_input_0$")):
        rows = step.tensors(regex=(regex,))
        pairs = zip(rows.column("size").tolist(), rows.workers, strict=True)
        sizes[of] = {size for size, of_worker in pairs if of_worker == worker}
    return bool(sizes[owner] and sizes[compared]) and sizes[owner].isdisjoint(sizes[compared])


def _views(values: npt.NDArray[Any], targets: npt.NDArray[Any] | None) -> Iterator[_View]:
    """Yield rows of an input [B, ...] beside their targets, and those of each time of a series.

    Targets [B, T'] or [B, T', K] are those of the last T' times of a series [B, T, C]: the first
    ones are a warm-up. Where most of them do not vary in time, they are targets of the series.
    """
    if targets is None or not values.ndim or not targets.ndim or are_targets(values, targets):
        return
    is_series = values.ndim == _SERIES and targets.ndim in (_TABLE, _SERIES)
    is_series &= len(values) == len(targets)
    if is_series and 1 < targets.shape[1] <= values.shape[1]:
        length = targets.shape[1]
        flat = targets.reshape(len(targets), length, -1)
        if 2 * (flat[:, 1:] != flat[:, :-1]).any((1, 2)).sum() >= len(flat):
            timed = values[:, -length:].reshape(-1, values.shape[2])
            yield _View(_OF_TIMES, timed, flat.reshape(-1, flat.shape[2]), length)
        if targets.ndim == _SERIES and length == values.shape[1]:
            return
    yield _View("", values, targets, 1)


def _telling(view: _View, kept: Kept | None, seen: list[int]) -> list[Told | None] | None:
    """Return what tells each target, of what is kept of those before; None if nothing could."""
    # Of the features of trees only the first rows may be saved.
    numbers = as_targets(view.targets[: len(view.values)])
    columns = None if numbers is None else as_columns(view.values, len(numbers))
    if columns is None or numbers is None:
        return None
    known = known_columns(kept, columns.shape[1])
    whole = columns.reshape(len(columns) // view.in_row, -1)
    is_new = cache(lambda: are_new(whole, seen).repeat(view.in_row))
    # Of images and texts many columns tell two classes nearly: one of them may by chance.
    may_part = view.values.ndim == _TABLE and not view.key
    tell = partial(columns_of_all, known=known, may_part=may_part, are_classes=view.are_classes)
    return tell(columns, numbers, is_new=is_new)
