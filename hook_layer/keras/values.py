"""Values of Keras's backends as numpy arrays that nobody else changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from hook_layer.capture import ArraySnapshot, Snapshot, StatisticsBatch, array_batch
from hook_layer.reductions import Reduction, reduce_array

__all__ = ["HostArray", "HostArrayBackend", "host_array", "is_of_keras"]

_WIDENED: Final = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True, slots=True)
class HostArray:
    """An array that is kept as it is.

    Attributes:
        array: The array; float32 where numpy does not have the type.
        dtype: Name of the type that it had.
    """

    array: NDArray[Any]
    dtype: str


def is_of_keras(value: Any) -> bool:
    """Return whether a value is a tensor or variable of the backend."""
    return isinstance(value, keras.Variable) or bool(keras.ops.is_tensor(value))


def host_array(value: Any) -> HostArray:
    """Return a copy of a value.

    Args:
        value: A tensor or variable of the backend, or what numpy makes an array of.

    Raises:
        Exception: It has no value that can be read, as tensors within a graph have none; of the
            type that the backend gives.
    """
    array = np.array(keras.ops.convert_to_numpy(value) if is_of_keras(value) else value)
    name = array.dtype.name
    return HostArray(array.astype(np.float32) if name in _WIDENED else array, name)


class HostArrayBackend:
    """Captures what `host_array` makes an array of; arrays of its own without another copy."""

    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape."""
        known = _known(value)
        return known.dtype, known.array.shape

    def statistics(
        self, values: Sequence[Any], copies: Sequence[Snapshot | None]
    ) -> StatisticsBatch:
        """Leave arrays that are kept anyway to the writer."""
        return array_batch([_known(value).array for value in values], copies)

    def snapshots(self, values: Sequence[Any], rows: Sequence[int | None]) -> Sequence[Snapshot]:
        """Keep the arrays; of some rows a copy, so that the array can be let go."""
        pairs = zip((_known(value).array for value in values), rows, strict=True)
        return [ArraySnapshot(a if n is None else a[:n].copy()) for a, n in pairs]

    def reduce(self, value: Any, reduction: Reduction) -> Snapshot:
        """Reduce the array, by numpy's definitions."""
        return ArraySnapshot(reduce_array(_known(value).array, reduction))


def _known(value: Any) -> HostArray:
    return value if isinstance(value, HostArray) else host_array(value)
