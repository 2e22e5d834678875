"""Reads tensor values of one step or of two steps, a few tensors at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["row_values", "value_pairs"]

_BYTES_AT_ONCE: Final = 1 << 24


def value_pairs(
    one: StepView, other: StepView, names: Iterable[str], worker: str
) -> Iterator[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield name and both values of the tensors that a worker saved at both steps.

    Neighbours in the event file are read together. It needs memory for twice the largest tensor, or
    twice 16 MiB.

    Raises:
        RecordError: If an event file is damaged, or a record longer than 2 GiB.
    """
    if worker not in one.workers or worker not in other.workers:
        return
    wanted, there = frozenset(names), other.value_bytes(worker)
    group: list[str] = []
    num_bytes = 0
    for name, length in one.value_bytes(worker).items():
        if name not in wanted or name not in there:
            continue
        if group and num_bytes + max(length, there[name]) > _BYTES_AT_ONCE:
            yield from _pairs_of(one, other, group, worker)
            group, num_bytes = [], 0
        group.append(name)
        num_bytes += max(length, there[name])
    yield from _pairs_of(one, other, group, worker)


def _pairs_of(
    one: StepView, other: StepView, names: list[str], worker: str
) -> Iterator[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]]:
    if not names:
        return
    ours, theirs = one.values(names, worker), other.values(names, worker)
    for name in names:
        if name in ours and name in theirs:
            yield name, ours.pop(name), theirs.pop(name)


def row_values(step: StepView, rows: TensorRows) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield position and value of the rows whose value was saved, one tensor at a time.

    It needs memory for the largest tensor, or 16 MiB, if you keep none.

    Raises:
        RecordError: If an event file is damaged, or a record longer than 2 GiB.
    """
    by_worker: dict[str, dict[str, int]] = defaultdict(dict)
    for at, (name, worker) in enumerate(zip(rows.names, rows.workers, strict=True)):
        by_worker[worker][name] = at
    for worker, names in by_worker.items():
        for name, value in step.iter_values(names, worker):
            yield names[name], value
