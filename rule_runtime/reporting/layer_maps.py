"""Bins norms of layers over the steps for a readable heat map.

Shape legend: R = rows, C = columns, S = steps, G = gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.reporting.heat_map import HeatMap
from rule_runtime.reporting.run_history import StepNorms
from rule_runtime.reporting.tensor_kinds import GRADIENT, TensorGroup

__all__ = ["gradient_norms", "update_ratios", "weight_norms"]

_MAX_ROWS: Final = 40
_MAX_COLUMNS: Final = 120
_LAST: Final = 1 << 62
_HELD_COLUMNS: Final = 3
"""Empty columns in a row that repeat the previous column: steps are not always evenly spaced."""


def gradient_norms(norms: Sequence[StepNorms], captured: Iterable[str]) -> HeatMap | None:
    """Return the norms of the gradients; None if none were saved.

    Args:
        norms: The norms of each step, in order.
        captured: Names of all tensors in the order in which they were captured.
    """
    found = [each for each in norms if len(each.gradients)]
    if not found:
        return None
    names = [name for group in _groups(found) for name in group.gradient_names]
    rows = _in_order({name: name.removeprefix(GRADIENT) for name in names}, captured)
    data = _binned(found, rows, lambda each: (each.group.gradient_names, each.gradients))
    note = "the largest in each cell"
    if len(data.rows) < len(rows):
        note += f"; {len(rows)} gradients in {len(data.rows)} rows, each with the norm of all of it"
    return replace(data, what="L2 norm of the gradient", note=note)


def weight_norms(norms: Sequence[StepNorms]) -> HeatMap | None:
    """Return the norms of the weights; None if none were saved."""
    found = [each for each in norms if len(each.weights)]
    if not found:
        return None
    rows = {name: name for group in _groups(found) for name in group.weight_names}
    data = _binned(found, rows, lambda each: (each.group.weight_names, each.weights))
    return replace(data, what="L2 norm of the weight", note="the largest in each cell")


def update_ratios(norms: Sequence[StepNorms]) -> HeatMap | None:
    """Return the sizes of updates relative to weights; None if unknown.

    A gradient descent update is the learning rate times the gradient. Without a learning rate,
    gradients are compared with weights. Without gradients, the change of a weight's norm is a lower
    bound of the weight's change.
    """
    found = [each for each in norms if len(each.weights)]
    with_gradients = [each for each in found if len(each.gradients)]
    rows = {name: name for group in _groups(found) for name in group.weight_names}
    if with_gradients:
        has_rate = all(each.learning_rate is not None for each in with_gradients)
        data = _binned(with_gradients, rows, _ratios)
        what = "learning rate * gradient / weight" if has_rate else "gradient / weight"
        note = "norms; exact for plain gradient descent, about a thousandth is usual"
        if not has_rate:
            note = (
                "norms; multiply by the learning rate for plain gradient descent: about a "
                "thousandth is usual. Save the learning rate as a scalar to plot this"
            )
        return replace(data, what=what, note=note)
    if len(found) < 2:  # noqa: PLR2004 - a change is between two
        return None
    previous = dict(zip([each.step for each in found[1:]], found, strict=False))
    data = _binned(found[1:], rows, lambda each: _changes(each, previous[each.step]))
    note = "a step, by the norms: a weight changed at least as much. Save gradients to see more"
    return replace(data, what="relative change of the weight's norm", note=note)


def _in_order(rows: Mapping[str, str], captured: Iterable[str]) -> dict[str, str]:
    """Return gradients in layer order; the backward pass saves them in another order."""
    places: dict[str, int] = {}
    for at, name in enumerate(captured):
        if not name.startswith(GRADIENT):
            places.setdefault(_layer(name), at)
    forward = reversed(list(rows.items()))
    return dict(sorted(forward, key=lambda row: places.get(_layer(row[1]), _LAST)))


def _layer(name: str) -> str:
    """Return the name of a parameter's layer."""
    return name.removeprefix(GRADIENT).rpartition(".")[0] or name


def _groups(found: Sequence[StepNorms]) -> list[TensorGroup]:
    """Return the different groups of tensors: most steps have the same one."""
    return list(dict.fromkeys(each.group for each in found))


def _ratios(each: StepNorms) -> tuple[Sequence[str], npt.NDArray[np.float64]]:
    """Return the weights with gradients, and the ratio of each."""
    names, of_weights, of_gradients = each.group.pairs
    weights = each.weights[of_weights].astype(np.float64)
    gradients = each.gradients[of_gradients].astype(np.float64)
    rate = 1.0 if each.learning_rate is None else abs(each.learning_rate)
    with np.errstate(all="ignore"):
        ratios = np.where(weights == 0, np.nan, rate * gradients / weights)
    ratios[~(np.isfinite(weights) & np.isfinite(gradients))] = np.inf
    return names, ratios


def _changes(each: StepNorms, before: StepNorms) -> tuple[Sequence[str], npt.NDArray[np.float64]]:
    earlier = dict(zip(before.group.weight_names, before.weights.tolist(), strict=True))
    names = each.group.weight_names
    then = np.array([earlier.get(name, np.nan) for name in names], np.float64)
    now = each.weights.astype(np.float64)
    with np.errstate(all="ignore"):
        change = np.abs(now - then) / then / (each.step - before.step)
    change[np.isinf(now)] = np.inf
    return names, np.where(then == 0, np.nan, change)


def _binned(
    found: Sequence[StepNorms],
    rows: Mapping[str, str],
    numbers: Callable[[StepNorms], tuple[Sequence[str], npt.NDArray[Any]]],
) -> HeatMap:
    """Return numbers by tensor row and step column; each cell has the largest number.

    Several tensors in a row are combined as the root of their summed squares.
    """
    labels, row_of = _row_groups(list(rows))
    members: list[list[str]] = [[] for _ in labels]
    for name, at in row_of.items():
        members[at].append(name)
    first, last = found[0].step, found[-1].step
    num_columns = min(len(found), _MAX_COLUMNS)
    scale = (num_columns - 1) / (last - first) if last > first else 0.0
    cells = np.full((len(labels), num_columns), np.nan)
    known: dict[int, npt.NDArray[np.intp]] = {}
    for each in found:
        names, values = numbers(each)
        places = known.get(id(each.group)) if len(values) else None
        if places is None or len(places) != len(names):
            places = known[id(each.group)] = np.array([row_of[n] for n in names], np.intp)
        squares = np.full(len(labels), np.nan)
        is_known = ~np.isnan(values)
        rows_of, found_values = places[is_known], values[is_known].astype(np.float64)
        squares[rows_of] = np.bincount(rows_of, np.square(found_values))[rows_of]
        column = round((each.step - first) * scale)
        cells[:, column] = np.fmax(cells[:, column], np.sqrt(squares))
    _hold(cells)
    shown = [rows.get(label, label) for label in labels]
    return HeatMap(shown, first, last, cells, members=members)


def _hold(cells: npt.NDArray[np.float64]) -> None:
    """Fill empty columns from the previous column, if it is near."""
    is_empty = [bool(column.all()) for column in np.isnan(cells).T]
    last = 0
    for column in range(cells.shape[1]):
        if not is_empty[column]:
            last = column
        elif column - last < _HELD_COLUMNS:
            cells[:, column] = cells[:, last]


def _row_groups(names: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Return row labels, and the row of each name; many layers share rows."""
    if len(names) <= _MAX_ROWS:
        return list(names), {name: at for at, name in enumerate(names)}
    layers = {name: _layer(name) for name in names}
    order = {layer: at for at, layer in enumerate(dict.fromkeys(layers.values()))}
    count = min(len(order), _MAX_ROWS)
    row_of_layer = {layer: at * count // len(order) for layer, at in order.items()}
    members: dict[int, list[str]] = {}
    for layer, row in row_of_layer.items():
        members.setdefault(row, []).append(layer)
    labels = [
        of_row[0] if len(of_row) == 1 else f"{of_row[0]} \u2026 {of_row[-1]}"
        for _, of_row in sorted(members.items())
    ]
    return labels, {name: row_of_layer[layer] for name, layer in layers.items()}
