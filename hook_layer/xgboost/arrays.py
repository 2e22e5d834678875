"""Captures arrays that were computed for the hook alone, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hook_layer.capture import ArraySnapshot, Snapshot, StatisticsBatch, TensorBackend
from hook_layer.core.tensor_capture import TensorSource
from hook_layer.guard import FailureLog
from hook_layer.reductions import Reduction, reduce_array
from hook_layer.statistics import statistics_rows

__all__ = ["ComputedArray", "ComputedArrayBackend", "ComputedTensors"]


@dataclass(frozen=True, slots=True)
class ComputedArray:
    """An array that nobody else changes.

    Attributes:
        array: The array.
        is_shared: Whether another tensor of the step has the same array, and accounts for it.
    """

    array: NDArray[Any]
    is_shared: bool = False


class _SharedSnapshot(ArraySnapshot):
    """A snapshot whose memory is another one's."""

    __slots__ = ()

    def __init__(self, array: NDArray[Any]) -> None:
        super().__init__(array)
        self.nbytes = 0


class _Statistics:
    """Statistics that are computed when they are asked for, of each array once."""

    __slots__ = ("_arrays", "_rows")
    nbytes = 0

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays = arrays
        self._rows: NDArray[np.float64] | None = None

    def rows(self) -> NDArray[np.float64]:
        if self._rows is None:
            distinct = {id(array): array for array in self._arrays}
            rows = statistics_rows([*distinct.values()])
            places = {key: place for place, key in enumerate(distinct)}
            self._rows = rows[[places[id(array)] for array in self._arrays]]
            self._arrays = ()
        return self._rows


class ComputedArrayBackend:
    """Captures computed arrays."""

    def describe(self, value: ComputedArray) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape."""
        return value.array.dtype.name, value.array.shape

    def statistics(
        self, values: Sequence[ComputedArray], copies: Sequence[Snapshot | None]
    ) -> StatisticsBatch:
        """Leave the statistics of stored arrays to the writer; release other arrays."""
        batch = _Statistics([value.array for value in values])
        if None in copies:
            batch.rows()
        return batch

    def snapshots(
        self, values: Sequence[ComputedArray], rows: Sequence[int | None]
    ) -> Sequence[Snapshot]:
        """Keep the arrays; of some rows a copy, so that the array can be let go."""
        return [_snapshot(value, number) for value, number in zip(values, rows, strict=True)]

    def reduce(self, value: ComputedArray, reduction: Reduction) -> Snapshot:
        """Reduce the array, by numpy's definitions."""
        return ArraySnapshot(reduce_array(value.array, reduction))


class ComputedTensors(TensorSource):
    """Captures computed arrays, and what numpy makes arrays of.

    Args:
        failures: Counts tensors that cannot be captured.
    """

    def __init__(self, failures: FailureLog) -> None:
        super().__init__(failures)
        self._computed_backend = ComputedArrayBackend()

    def backend_of(self, value: Any) -> TensorBackend:
        """Return the backend that captures a value."""
        is_ours = isinstance(value, ComputedArray)
        return self._computed_backend if is_ours else super().backend_of(value)


def _snapshot(value: ComputedArray, rows: int | None) -> Snapshot:
    if rows is not None:
        return ArraySnapshot(value.array[:rows].copy())
    return (_SharedSnapshot if value.is_shared else ArraySnapshot)(value.array)
