"""Captured data of a step, passed from the training thread to the writer.

The training thread takes snapshots (copies) and starts the statistics. The writer's thread does the
remaining work, in `Snapshot.array` and `StatisticsBatch.rows`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture.reductions import Reduction, reduce_array
from hook_layer.capture.statistics import statistics_rows
from hook_layer.configuration.collection_manager import SummaryPlan
from hook_layer.format.index import STATISTICS_COLUMNS
from hook_layer.format.modes import ModeKeys
from hook_layer.format.records import to_array
from hook_layer.format.statistics_block import Shard

__all__ = [
    "ArraySnapshot",
    "CapturedBatch",
    "CapturedTensor",
    "NumpyBackend",
    "OwnedArray",
    "Snapshot",
    "StatisticsBatch",
    "StepRecord",
    "TensorBackend",
    "TensorStatistics",
    "array_batch",
    "checked_name",
]

_MAX_NAME_BYTES: Final = 1024
_REAL_NUMBERS: Final = ("float", "bfloat", "int", "uint", "qint", "quint")


def checked_name(name: str) -> str:
    """Return `name` if the format can store it.

    Raises:
        TypeError: It is not a string.
        ValueError: It is empty, longer than 1,024 bytes of UTF-8, or has lone surrogates.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor must be a string, not {name!r}")
    try:
        length = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the name {name[:80]!r} cannot be encoded as UTF-8: {error.reason}"
        ) from None
    if not 0 < length <= _MAX_NAME_BYTES:
        raise ValueError(
            f"the name {name[:80]!r} has {length} bytes; it must have 1 to {_MAX_NAME_BYTES}"
        )
    return name


class Snapshot(Protocol):
    """A copy of a tensor's value at the time of capture."""

    nbytes: int

    def array(self) -> NDArray[Any]:
        """Return the value, in a type of the format."""
        ...

    def release(self) -> None:
        """Release the memory; the array is invalid afterwards."""
        ...


class StatisticsBatch(Protocol):
    """Statistics of several tensors, computed together.

    Attributes:
        nbytes: Host memory that they use until they are computed.
    """

    nbytes: int

    def rows(self) -> NDArray[np.float64]:
        """Return the statistics, [tensors, STATISTICS_COLUMNS]; waits for the device."""
        ...


class TensorBackend(Protocol):
    """Captures values of one framework."""

    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape."""
        ...

    def statistics(
        self, values: Sequence[Any], copies: Sequence[Snapshot | None]
    ) -> StatisticsBatch:
        """Start computing the statistics of several tensors.

        Args:
            values: The tensors.
            copies: The snapshot of each tensor, if there is one; the writer computes its
                statistics.
        """
        ...

    def snapshots(self, values: Sequence[Any], rows: Sequence[int | None]) -> Sequence[Snapshot]:
        """Copy the values of several tensors.

        Args:
            values: The tensors.
            rows: Number of first rows to copy of each tensor; None: all.
        """
        ...

    def reduce(self, value: Any, reduction: Reduction) -> Snapshot:
        """Start computing a reduction, [] (0-d)."""
        ...


@dataclass(slots=True)
class CapturedTensor:
    """One tensor of a step.

    Attributes:
        dtype: Name of its type in the framework.
        shape: Its shape.
        raw: Its value, if that is saved.
        rows: Number of stored first rows; None: all.
        is_of_parameter: Whether it is a parameter, or belongs to one, like a gradient.
        reductions: Saved reductions, with their names as tensors.
        statistics: The batch with its statistics; None without statistics.
        row: Its row in the batch.
        wall_time: Its own time, seconds since 1970; None: when the step began.
        summaries: What TensorBoard shows of it; None: nothing.
        shown: The value for TensorBoard; equals `raw` if that is saved, too.
        shard: The part of a sharded tensor; None: a whole tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    raw: Snapshot | None = None
    rows: int | None = None
    is_of_parameter: bool = False
    reductions: Sequence[tuple[str, Snapshot]] = ()
    statistics: StatisticsBatch | None = None
    row: int = 0
    wall_time: float | None = None
    summaries: SummaryPlan | None = None
    shown: Snapshot | None = None
    shard: Shard | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether it has real numbers, and at least one."""
        return self.dtype.startswith(_REAL_NUMBERS) and 0 not in self.shape

    @property
    def snapshots(self) -> list[Snapshot]:
        """All memory that this tensor holds until it is written."""
        held = [] if self.raw is None else [self.raw]
        if self.shown is not None and self.shown is not self.raw:
            held.append(self.shown)
        if self.reductions:
            held += [snapshot for _, snapshot in self.reductions]
        return held


class CapturedBatch(Protocol):
    """Tensors that were captured together; objects for single tensors are created when read.

    Attributes:
        nbytes: Memory that the batch holds.
    """

    nbytes: int

    def __len__(self) -> int:
        """Return the number of tensors."""
        ...

    def tensors(self) -> dict[str, CapturedTensor]:
        """Return the tensors by name."""
        ...


class StepRecord:
    """All captured data of one step of one worker.

    Args:
        step: Global step.
        mode: Mode of the step.
        mode_step: Step within the mode.
        tensors: Captured tensors by name.
        wall_time: When the step began, seconds since 1970; default: now.

    Attributes:
        num_tensors: Number of its tensors; those captured repeatedly may count twice.
    """

    __slots__ = ("_parts", "mode", "mode_step", "num_tensors", "step", "wall_time")

    def __init__(
        self,
        step: int,
        mode: ModeKeys,
        mode_step: int,
        tensors: dict[str, CapturedTensor] | None = None,
        wall_time: float | None = None,
    ) -> None:
        self.step = step
        self.mode = mode
        self.mode_step = mode_step
        self.wall_time = time.time() if wall_time is None else wall_time
        self._parts: list[dict[str, CapturedTensor] | CapturedBatch] = []
        self.num_tensors = 0
        if tensors is not None:
            self.add(tensors)

    @property
    def tensors(self) -> dict[str, CapturedTensor]:
        """All tensors by name; the first call creates the tensors of batches."""
        if len(self._parts) != 1 or not isinstance(self._parts[0], dict):
            found: dict[str, CapturedTensor] = {}
            for part in self._parts:
                found.update(part if isinstance(part, dict) else part.tensors())
            self._parts, self.num_tensors = [found], len(found)
            return found
        return self._parts[0]

    @property
    def single_tensors(self) -> dict[str, CapturedTensor]:
        """Tensors outside of batches, by name."""
        singles = (part for part in self._parts if isinstance(part, dict))
        return {name: tensor for part in singles for name, tensor in part.items()}

    def add(self, *parts: dict[str, CapturedTensor] | CapturedBatch) -> None:
        """Add tensors; they replace others with the same names."""
        self._parts += parts
        self.num_tensors += sum(map(len, parts))

    @property
    def nbytes(self) -> int:
        """Bytes of the snapshots, plus an allowance per tensor."""
        held = 512 * self.num_tensors
        batches = {}
        for part in self._parts:
            if not isinstance(part, dict):
                held += part.nbytes
                continue
            for tensor in part.values():
                for snapshot in tensor.snapshots:
                    held += snapshot.nbytes
                batches[id(tensor.statistics)] = tensor.statistics
        return held + sum(batch.nbytes for batch in batches.values() if batch is not None)

    def move_on(self) -> None:
        """Make it the next step of its mode."""
        self.step += 1
        self.mode_step += 1

    def clear(self) -> None:
        """Release the memory of all snapshots, and forget the tensors."""
        self.release()
        self._parts, self.num_tensors = [], 0

    def release(self) -> None:
        """Release the memory of all snapshots; those of batches are freed with the batch."""
        for tensor in self.single_tensors.values():
            for snapshot in tensor.snapshots:
                snapshot.release()


class ArraySnapshot:
    """A snapshot of an existing array.

    Args:
        array: The array.
        is_shared: Whether another snapshot accounts for its memory.
    """

    __slots__ = ("_array", "nbytes")

    def __init__(self, array: NDArray[Any], *, is_shared: bool = False) -> None:
        self._array = array
        self.nbytes = 0 if is_shared else array.nbytes

    def array(self) -> NDArray[Any]:
        """Return the value."""
        return self._array

    def release(self) -> None:
        """Do nothing."""


class TensorStatistics:
    """Statistics that are known, or computed once on demand.

    Args:
        entries: For each tensor its row, a function that returns it, or its snapshot, which must
            stay valid until then.
        nbytes: Host memory that they use until then.
    """

    __slots__ = ("_entries", "_rows", "nbytes")

    def __init__(
        self,
        entries: Sequence[tuple[float, ...] | Callable[[], tuple[float, ...]] | Snapshot],
        nbytes: int = 0,
    ) -> None:
        self._entries = entries
        self.nbytes = nbytes
        self._rows: NDArray[np.float64] | None = None

    def rows(self) -> NDArray[np.float64]:
        """Return the statistics, [tensors, STATISTICS_COLUMNS]."""
        if self._rows is None:
            rows = np.empty((len(self._entries), len(STATISTICS_COLUMNS)))
            arrays: dict[int, NDArray[Any]] = {}
            for position, entry in enumerate(self._entries):
                if isinstance(entry, tuple):
                    rows[position] = entry
                elif callable(entry):
                    rows[position] = entry()
                else:
                    arrays[position] = entry.array()
            rows[[*arrays]] = _rows_of([*arrays.values()])
            self._rows, self._entries = rows, ()
        return self._rows


def array_batch(
    arrays: Sequence[NDArray[Any]], copies: Sequence[Snapshot | None]
) -> TensorStatistics:
    """Return the statistics of arrays; the writer computes those of copied arrays."""
    left = [array for array, copy in zip(arrays, copies, strict=True) if copy is None]
    rows = map(tuple, _rows_of(left).tolist())
    return TensorStatistics([copy or next(rows) for copy in copies])


def _rows_of(arrays: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Return the statistics of arrays; each distinct array is computed once."""
    distinct = {id(array): array for array in arrays}
    rows = statistics_rows([*distinct.values()])
    if len(distinct) == len(arrays):
        return rows
    places = {key: place for place, key in enumerate(distinct)}
    return rows[[places[id(array)] for array in arrays]]


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    name: str = dtype.name  # numpy composes it at each call
    return name


@dataclass(frozen=True, slots=True)
class OwnedArray:
    """An array that is never changed, so that it is stored without a copy.

    Attributes:
        array: The array.
        dtype: Name of its type in the framework; empty: the type of the array.
        is_shared: Whether another tensor of the step has the same array, and accounts for it.
    """

    array: NDArray[Any]
    dtype: str = ""
    is_shared: bool = False


class NumpyBackend:
    """Captures numpy arrays, owned or not, numbers, and anything that numpy converts to arrays."""

    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape."""
        array = _array_of(value)
        dtype = value.dtype if isinstance(value, OwnedArray) else ""
        return dtype or _name_of(array.dtype), array.shape

    def statistics(
        self, values: Sequence[Any], copies: Sequence[Snapshot | None]
    ) -> StatisticsBatch:
        """Compute the statistics of arrays without a copy."""
        return array_batch([_array_of(value) for value in values], copies)

    def snapshots(self, values: Sequence[Any], rows: Sequence[int | None]) -> Sequence[Snapshot]:
        """Copy the arrays; of owned ones only cut rows, so that the whole array can be freed."""
        return [_snapshot(value, number) for value, number in zip(values, rows, strict=True)]

    def reduce(self, value: Any, reduction: Reduction) -> Snapshot:
        """Reduce the array, by numpy's definitions."""
        return ArraySnapshot(reduce_array(_array_of(value), reduction))


def _array_of(value: Any) -> NDArray[Any]:
    return value.array if isinstance(value, OwnedArray) else to_array(value)


def _snapshot(value: Any, rows: int | None) -> Snapshot:
    if rows is None and isinstance(value, OwnedArray):
        return ArraySnapshot(value.array, is_shared=value.is_shared)
    array = _array_of(value)
    return ArraySnapshot(np.array(array if rows is None else array[:rows]))
