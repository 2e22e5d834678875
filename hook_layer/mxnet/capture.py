"""Copies of MXNet's arrays, made without waiting for them.

MXNet computes behind the script's back: what the script holds may not be there yet, and who looks
at it waits. So a copy is but ordered here; MXNet makes it when the array is there, and before
anything else is written to it. The writer's thread takes the numbers out, and computes statistics
and reductions of them, by numpy's definitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final
from weakref import ReferenceType, ref

import numpy as np
from mxnet import cpu
from mxnet.ndarray import NDArray
from mxnet.util import np_shape
from numpy.typing import NDArray as NumpyArray

from hook_layer.capture.captured_step import Snapshot, StatisticsBatch, TensorStatistics
from hook_layer.capture.reductions import Reduction, reduce_array

__all__ = ["ArrayBackend"]

_BFLOAT16: Final = "bfloat16"
_DENSE: Final = "default"


_held: Final[dict[int, NDArray]] = {}
"""The arrays of copies, by number.

Where the garbage collector finds a hook, it calls `__del__` of all that goes with it, and only then
notices that the hook's own has saved the open step for the end of the process. MXNet's arrays free
their memory there. So a copy does not hold its array, but the number of it.
"""
_orphans: Final[dict[int, ReferenceType[_ArrayCopy]]] = {}
"""Copies that are dead, unless somebody saved them."""
_numbers: Final = itertools.count()


class _ArrayCopy:
    """A copy in the host's memory, possibly still on its way."""

    __slots__ = ("__weakref__", "_array", "_number", "nbytes")

    def __init__(self, value: NDArray) -> None:
        for number, copy in list(_orphans.items()):
            if copy() is None:
                _held.pop(number, None)
                del _orphans[number]
        array = _storable(value).copyto(cpu())
        self._array: NumpyArray[Any] | None = None
        self._number = next(_numbers)
        _held[self._number] = array
        self.nbytes = int(array.size) * np.dtype(array.dtype).itemsize

    def array(self) -> NumpyArray[Any]:
        held = _held.get(self._number)
        if held is not None:
            with np_shape(active=True):  # else an array without dimensions has no shape here
                self._array = held.asnumpy()
            del _held[self._number]
        if self._array is None:
            raise RuntimeError("the snapshot was released")
        return self._array

    def release(self) -> None:
        self._array = None
        _held.pop(self._number, None)

    def __del__(self) -> None:
        if self._number in _held:
            _orphans[self._number] = ref(self)


class _Reduction:
    """A reduction that is computed when it is asked for."""

    __slots__ = ("_copy", "_reduction", "nbytes")

    def __init__(self, copy: Snapshot, reduction: Reduction) -> None:
        self._copy = copy
        self._reduction = reduction
        self.nbytes = 8

    def array(self) -> NumpyArray[Any]:
        return reduce_array(self._copy.array(), self._reduction)

    def release(self) -> None:
        """The copy is released by whom it belongs to."""


class ArrayBackend:
    """Captures MXNet's arrays. Of each there is one copy only until `forget` is called."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[NDArray, _ArrayCopy]] = {}

    def forget(self) -> None:
        """Forget which arrays were copied: from now on they may change."""
        self._copies.clear()

    def copy_of(self, value: Any) -> Snapshot | None:
        """Return the copy of an array that was made since the last `forget`."""
        known = self._copies.get(id(value))
        return None if known is None else known[1]

    def describe(self, value: NDArray) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape."""
        dtype = np.dtype(value.dtype)
        name = _BFLOAT16 if _is_bfloat16(dtype) else dtype.name
        return name, tuple(map(int, value.shape))

    def statistics(
        self,
        values: Sequence[NDArray],
        copies: Sequence[Snapshot | None],  # noqa: ARG002 - known here
    ) -> StatisticsBatch:
        """Leave the statistics to the writer."""
        return TensorStatistics(self.snapshots(values))

    def snapshots(
        self,
        values: Sequence[NDArray],
        rows: Sequence[int | None] = (),  # noqa: ARG002
    ) -> Sequence[Snapshot]:
        """Copy arrays to the host; bfloat16 as float32, sparse ones as dense.

        The writer computes the statistics of the copies, so they are of whole arrays.
        """
        return [self._snapshot(value) for value in values]

    def _snapshot(self, value: NDArray) -> Snapshot:
        known = self._copies.get(id(value))
        if known is None:
            known = self._copies[id(value)] = (value, _ArrayCopy(value))
        return known[1]

    def reduce(self, value: NDArray, reduction: Reduction) -> Snapshot:
        """Leave a reduction to the writer."""
        if not value.size:
            raise ValueError("the array has no elements")
        return _Reduction(self._snapshot(value), reduction)


def _storable(value: NDArray) -> NDArray:
    plain = value.as_nd_ndarray()
    if plain.stype != _DENSE:
        plain = plain.tostype(_DENSE)
    return plain.astype("float32") if _is_bfloat16(np.dtype(plain.dtype)) else plain


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    return dtype.names == (_BFLOAT16,)
