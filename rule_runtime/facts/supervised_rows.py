"""Pairs the rows of model inputs with the rows of their targets.

Shape legend: B = batch, N = rows, C = columns, T = targets of a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.losses import IGNORED, Losses
from rule_runtime.facts.model_inputs import MODEL_INPUT, is_of_keras
from rule_runtime.numerics.class_pairs import is_one_hot
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SupervisedRows", "has_pairs", "input_target_pairs", "supervised_rows"]

_Values = npt.NDArray[Any]

_LABELS: Final = "labels"
_INPUT_OF_TREES: Final = "input_values"
_MAX_ELEMENTS: Final = 1 << 22
"""Maximum elements of an input; sorting more takes seconds."""
_MAX_TARGETS: Final = 8
"""Maximum targets of a row; more are a picture or series, compared by position."""
_COLUMNS_EACH: Final = 2
"""Minimum columns per target if there are several; with fewer, the model may rebuild its inputs."""


class SupervisedRows(NamedTuple):
    """Rows of an input with a target for each.

    Attributes:
        key: Identifies the worker, the input, the targets and their alignment.
        name: Name of the input; `of_targets` is that of the targets.
        examples: The input as saved [B, ...].
        columns: The input [N, C]: N is B, or B times the positions with their own targets.
        target: Finite numbers or classes [N].
        are_classes: Whether the loss is for classes.
    """

    key: str
    name: str
    of_targets: str
    examples: _Values
    columns: _Values
    target: npt.NDArray[np.float64]
    are_classes: bool


def input_target_pairs(step: StepView, inputs: TensorRows) -> Iterator[tuple[int, str]]:
    """Yield the rows of model inputs, and the names of the targets of the same rows."""
    losses = step.fact(Losses).losses
    of_losses = sorted({(loss.owner, loss.worker) for loss in losses if loss.owner})
    labels = step.tensors(regex=(f"^{_LABELS}$",)).workers
    of_keras = step.tensors(regex=(f"^{_LABELS}(_[0-9]+)?$",))
    weights = step.tensors(collections=("weights",)).names
    for at, (name, worker) in sorted(enumerate(inputs.pairs), key=lambda row: row[1]):
        if is_of_keras(name):
            own = sorted(of_targets for of_targets, of in of_keras.pairs if of == worker)
            yield from ((at, of_targets) for of_targets in own)
            continue
        owner = name.rpartition("_input_")[0]
        is_model = not weights or any(weight.startswith(f"{owner}_") for weight in weights)
        is_model &= (owner, worker) not in of_losses
        for loss, of_worker in of_losses:
            if is_model and of_worker == worker:
                yield at, f"{loss}_input_1"
        if worker in labels and (is_model or name == _INPUT_OF_TREES):
            yield at, _LABELS


def supervised_rows(step: StepView) -> list[SupervisedRows]:
    """Return the rows of all model inputs with saved values of inputs and targets.

    It ignores inputs that are their own targets, and several targets with less than twice as many
    columns, because an autoencoder rebuilds its inputs. It also ignores inputs of models whose
    output does not go into the loss.
    """
    found: list[SupervisedRows] = []
    inputs = step.tensors(regex=(MODEL_INPUT,))
    for at, of_targets in input_target_pairs(step, inputs):
        name, worker = inputs.names[at], inputs.workers[at]
        saved = step.values((name, of_targets), worker)
        values, targets = saved.get(name), saved.get(of_targets)
        if values is None or targets is None or not _is_compared(step, name, worker, of_targets):
            continue
        kind = step.fact(Losses).find(of_targets.replace("_input_1", "_output_0"), worker).kind
        for places, columns, numbers in _aligned(values, targets):
            key = f"{worker}/{name}/{of_targets}/{places}"
            for number, target in enumerate(numbers.T):
                rest = (name, of_targets, values, columns, target, kind.is_of_classes)
                found.append(SupervisedRows(f"{key}/{number}", *rest))
    return found


def has_pairs(step: StepView) -> bool:
    """Return whether values of an input of a model were saved with those of targets."""
    inputs = step.tensors(regex=(MODEL_INPUT,))
    return any(
        len(step.values((inputs.names[at], of_targets), inputs.workers[at])) > 1
        for at, of_targets in input_target_pairs(step, inputs)
    )


def _aligned(values: _Values, targets: _Values) -> Iterator[tuple[str, _Values, _Values]]:
    """Yield columns [N, C] and targets [N, T], of whole examples and of each position."""
    if values.dtype.kind not in "biuf" or targets.dtype.kind not in "biuf":
        return
    if not 0 < values.size <= _MAX_ELEMENTS or values.ndim <= 1 or not targets.ndim:
        return
    targets = targets[: len(values)]  # only the first rows are saved for boosted trees
    pairs = [("examples", _flat(values), _flat(targets))]
    match values.shape, targets.shape:
        case (_, times, _), (_, length, *rest) if 1 < length <= times and len(rest) <= 1:
            # The first positions may be a warm-up.
            pairs.append(("times", _flat(values[:, -length:], 2), _flat(targets, 2)))
        case (_, _, *size), (_, *_, height, width) if size == [height, width]:
            pixels = targets.reshape(len(targets), -1, *size)
            by_pixel = [_flat(np.moveaxis(x, 1, -1), 3) for x in (values, pixels)]
            pairs.append(("pixels", by_pixel[0], by_pixel[1]))
    for places, columns, numbers in pairs:
        usable = _usable(columns, numbers)
        if usable is not None:
            yield places, *usable


def _usable(columns: _Values, targets: _Values) -> tuple[_Values, _Values] | None:
    """Return the rows with finite targets; None for too many targets, or copies of the input."""
    if len(columns) != len(targets) or columns.shape[1] <= 1:
        return None
    targets = _classes(targets)
    num_targets = targets.shape[1]
    if num_targets > 1 and columns.shape[1] < _COLUMNS_EACH * num_targets:
        return None
    if num_targets > _MAX_TARGETS or np.array_equal(_classes(columns), targets):
        return None
    is_known = (np.isfinite(targets) & (targets != IGNORED)).all(1)
    return columns[is_known], targets[is_known].astype(np.float64)


def _classes(values: _Values) -> _Values:
    """Return the classes of one-hot rows [N, 1]; other rows are unchanged."""
    return values.argmax(1)[:, None] if is_one_hot(values) else values


def _flat(values: _Values, axes: int = 1) -> _Values:
    return values.reshape(math.prod(values.shape[:axes]), math.prod(values.shape[axes:]))


def _is_compared(step: StepView, name: str, worker: str, of_targets: str) -> bool:
    """Return whether a loss may compare the output of the model with this input, by size."""
    owner = re.escape(name.rpartition("_input_")[0])
    loss = re.escape(of_targets.removesuffix("_input_1"))
    sizes = []
    for regex in (f"^{owner}_output_[0-9]+$", f"^{loss}_input_0$"):
        rows = step.tensors(regex=(regex,))
        pairs = zip(rows.column("size").tolist(), rows.workers, strict=True)
        sizes.append({size for size, of_worker in pairs if of_worker == worker})
    returned, given = sizes
    return not (returned and given) or not returned.isdisjoint(given)
