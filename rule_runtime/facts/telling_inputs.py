"""Inputs of models whose columns are the targets in another form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy.typing as npt

from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.facts.loss_owners import input_target_pairs
from rule_runtime.facts.model_inputs import MODEL_INPUT, OF_LAYERS
from rule_runtime.facts.telling_views import (
    OF_TIMES,
    Table,
    View,
    as_table,
    may_be_told,
    told_in_views,
)
from rule_runtime.facts.told_so_far import Kept, joined, known_columns, told_columns
from rule_runtime.numerics.telling_columns import (
    are_targets,
    columns_of_all,
)

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ToldTargets", "told_targets"]

_TABLE: Final = 2
_SERIES: Final = 3
_MAX_PAIRS: Final = 8
_SHOWN: Final = 4


class ToldTargets(NamedTuple):
    """Targets that columns of an input tell.

    Attributes:
        at: Row of the input among `step.tensors(regex=(MODEL_INPUT,))`.
        columns: The first column that tells each target alone, else all that do together.
        targets: Name of the targets.
        num_rows: Rows that show it, of several targets of that with the fewest.
        is_together: Whether not each of the columns tells a target alone.
        threshold: How many rows must show that a number is told.
    """

    at: int
    columns: list[int]
    targets: str
    num_rows: int
    is_together: bool
    threshold: float

    @property
    def measure(self) -> str:
        """What is measured."""
        return "rows_told"

    @property
    def value(self) -> float:
        """How many rows show it."""
        return float(self.num_rows)

    @property
    def sentence(self) -> str:
        """What tells the targets, in words."""
        columns = ", ".join(map(str, self.columns[:_SHOWN])) + " ..." * (len(self.columns) > _SHOWN)
        one = "column" if len(self.columns) == 1 else "columns"
        verb = "tells" if len(self.columns) == 1 else "tell"
        verb = "together tell" if self.is_together else verb
        return f"{one} {columns} {verb} the target {self.targets}, in {self.num_rows} rows"


def told_targets(step: StepView, memory: Memory, rows: int) -> tuple[bool, ToldTargets | None]:
    """Look for inputs whose columns tell targets, in this step as in those before.

    Args:
        step: The step.
        memory: Of at most 8 pairs of an input and targets, `kept`: what `joined` keeps of each;
            `seen`: numbers that stand for the rows of each that counted; what `told_in_views`
            keeps of each; `met`: whether there ever were values of an input beside targets, and
            `judged`, whether any told.
        rows: How many rows must show it.

    Returns:
        Whether any values could be looked at, and the first targets that are told.
    """
    is_judged, found = False, None
    inputs = step.tensors(regex=(MODEL_INPUT,))
    for at, view in _looked_at(step, inputs, memory):
        memory["met"] = True
        table = as_table(view)
        if table is None:
            continue
        for message in (
            _told(step, memory, view, table, rows),
            *told_in_views(memory, view, table, rows),
        ):
            is_judged |= message is not None
            if message is not None and message[0] and found is None:
                columns, num_rows, is_together = message
                found = ToldTargets(
                    at, columns, view.of_targets, num_rows, is_together, float(rows)
                )
    memory["judged"] = is_judged or memory.get("judged", False)
    return is_judged, found


def _looked_at(step: StepView, inputs: TensorRows, memory: Memory) -> Iterator[tuple[int, View]]:
    """Yield the row of an input, and a view of it, if it may still tell what it stands beside."""
    known: dict[str, Kept] = memory.setdefault("kept", {})
    looked_at: list[str] = memory.setdefault("looked_at", [])
    for at, of_targets in input_target_pairs(step, inputs):
        name, worker = inputs.names[at], inputs.workers[at]
        pair = f"{worker}/{name}/{of_targets}"
        before = [key for key in (pair, pair + OF_TIMES) if key in looked_at]
        if before and not any(known.get(key) != [] or may_be_told(memory, key) for key in before):
            continue  # no column is left that could
        values = step.values((name,), worker).get(name)
        if values is None or _is_of_other(step, name, worker, of_targets):
            continue  # labels are saved far more often than values
        kind = step.fact(LossInputs).kind(of_targets.replace("_input_1", "_output_0"), worker)
        for view in _views(values, step.values((of_targets,), worker).get(of_targets)):
            key = pair + view.key
            if key not in looked_at and len(looked_at) < _MAX_PAIRS:
                looked_at.append(key)
            if key in looked_at:
                view = view._replace(key=key, of_targets=of_targets, worker=worker)  # noqa: PLW2901
                yield at, view._replace(are_classes=kind.is_of_classes)


def _told(
    step: StepView, memory: Memory, view: View, table: Table, rows: int
) -> tuple[list[int], int, bool] | None:
    """Return what tells targets in all batches so far, as `told_columns`; None if nothing could."""
    known: dict[str, Kept] = memory["kept"]
    kept = known.get(view.key)
    if kept == []:
        return None
    seen: dict[str, list[int]] = memory.setdefault("seen", {})
    # Only of rows that were told something is remembered that they were there.
    now = [*seen.get(view.key, ())]
    message = columns_of_all(
        table.columns,
        table.targets,
        known=known_columns(kept, table.columns.shape[1]),
        # Of images and texts many columns tell two classes nearly: one of them may by chance.
        may_part=view.values.ndim == _TABLE and not view.key.endswith(OF_TIMES),
        are_classes=view.are_classes,
        is_new=cache(lambda: table.is_new(now)),
    )
    if message is None:
        return None
    narrowest = _narrowest(step, view.worker, len(view.values) // view.in_row)
    if len(message) > 1 and narrowest < _in_row(step, view.of_targets):
        return None  # what must be rebuilt behind a bottleneck
    if any(one is not None for one in message):
        known[view.key] = joined(kept, message)
        seen[view.key] = now if known[view.key] else []
    return told_columns(known.get(view.key), rows)


def _narrowest(step: StepView, worker: str, num_rows: int) -> float:
    """Return the fewest numbers in a row [B, ...] that a module is given; infinite if not known."""
    rows = step.tensors(regex=(OF_LAYERS,))
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


def _is_of_other(step: StepView, name: str, worker: str, of_targets: str) -> bool:
    """Return whether a loss compares what the model with this input did not return.

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


def _views(values: npt.NDArray[Any], targets: npt.NDArray[Any] | None) -> Iterator[View]:
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
            yield View(OF_TIMES, timed, flat.reshape(-1, flat.shape[2]), length)
        if targets.ndim == _SERIES and length == values.shape[1]:
            return
    yield View("", values, targets)
