"""Captures tensors together: one copy, or one kernel, per device and type.

The training thread does little for each tensor. The writer creates the objects of single tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture.captured_step import CapturedTensor, StatisticsBatch
from hook_layer.capture.statistics import segment_statistics
from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.pytorch.copies import PLAIN_TYPES, SMALL_BYTES, FlatCopy
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.statistics import DeviceRows
from hook_layer.pytorch.tensor_memory import owns_memory
from hook_layer.pytorch.values import WHOLE, type_name

__all__ = ["TorchBatch", "join"]

_Planned = tuple[Tensor, TensorPlan]
_Named = tuple[str, Tensor, TensorPlan]
_MOST_COPIED_BYTES: Final = 64 << 20
"""Maximum size of all copies of one capture; further tensors are captured one by one."""


def join(
    tensors: Mapping[str, _Planned], *, has_values: bool
) -> tuple[list[TorchBatch], dict[str, _Planned]]:
    """Return batches of the tensors that can be captured together, and the other tensors.

    Batched tensors are dense, of torch's own class, and have stored statistics. Their values may be
    stored if they are parameters or complete; other tensors share their number of rows.
    """
    joined: dict[object, list[_Named]] = {}
    others: dict[str, _Planned] = {}
    num_bytes = 0
    for name, planned in tensors.items():
        value, plan = planned
        is_cpu, has_value, size = value.is_cpu, plan.raw, 0
        is_joined = plan.is_whole_parameter and has_values if has_value else plan.is_statistics
        is_joined = is_joined and _is_plain(value, is_cpu=is_cpu)
        if is_joined and (is_cpu or has_value):  # which are copied
            size = value.nbytes
            is_joined = size < SMALL_BYTES and num_bytes + size <= _MOST_COPIED_BYTES
        if not is_joined:
            others[name] = planned
            continue
        num_bytes += size
        key = value.dtype if is_cpu else (value.dtype, value.device, has_value)
        if key in joined:
            joined[key].append((name, value, plan))
        else:
            joined[key] = [(name, value, plan)]
    return [TorchBatch(named) for named in joined.values()], others


def _is_plain(value: Tensor, *, is_cpu: bool) -> bool:
    """Return whether a tensor is dense, readable, of torch's own class and of a type of numpy."""
    if type(value) not in WHOLE or value.dtype not in PLAIN_TYPES:
        return False
    if is_cpu:
        return value.layout is torch.strided and owns_memory(value)
    is_flat = value.is_cuda and value.is_contiguous() and value.numel() > 0 and not value.is_neg()
    return is_flat and owns_memory(value)


class TorchBatch:
    """Tensors of one device and type.

    Attributes:
        nbytes: Memory of the copies.
    """

    __slots__ = (
        *("_copy", "_dtype", "_named", "_names", "_places", "_plans", "_shapes", "_statistics"),
        "nbytes",
    )

    def __init__(self, named: list[_Named]) -> None:
        self.nbytes = 0
        self._named = named
        self._names: Sequence[str] = ()
        self._plans: Sequence[TensorPlan] = ()
        self._places: Sequence[int] = ()  # one tensor may have several names
        self._shapes: list[torch.Size] = []
        self._dtype = named[0][1].dtype
        self._copy: FlatCopy | None = None
        self._statistics: StatisticsBatch | None = None

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._named) or len(self._names)

    @property
    def is_cuda(self) -> bool:
        """Whether the tensors are on a CUDA device; only before they are captured."""
        return self._named[0][1].is_cuda

    def capture(self, batches: DeviceBatches) -> None:
        """Capture the current tensors, and release them."""
        self._names, tensors, self._plans = zip(*self._named, strict=True)
        self._named = []
        keys = [*map(id, tensors)]
        by_key = dict(zip(keys, tensors, strict=True))
        values = [*by_key.values()]
        places = dict(zip(by_key, range(len(by_key)), strict=True))
        self._places = [places[key] for key in keys]
        self._shapes = [value.shape for value in values]
        is_cuda = values[0].is_cuda
        if is_cuda:
            rows = DeviceRows(*batches.add([value.detach().view(-1) for value in values]))
            self._statistics, self.nbytes = rows, rows.nbytes
        if not is_cuda or any(plan.raw for plan in self._plans):
            self._copy = FlatCopy(values)
            self.nbytes += self._copy.nbytes

    def tensors(self) -> dict[str, CapturedTensor]:
        """Return the tensors by name."""
        copy, shapes = self._copy, self._shapes
        copies = [] if copy is None else copy.segments(shapes)
        statistics = self._statistics
        if statistics is None and copy is not None:
            statistics = _FlatStatistics(copy, [shape.numel() for shape in shapes])
        dtype = type_name(self._dtype)
        shapes_as_tuples = [tuple(shape) for shape in shapes]
        return {
            name: CapturedTensor(
                dtype,
                shapes_as_tuples[place],
                raw=copies[place] if plan.raw else None,
                is_of_parameter=plan.is_of_parameter,
                statistics=statistics,
                row=place,
            )
            for name, plan, place in zip(self._names, self._plans, self._places, strict=True)
        }


class _FlatStatistics:
    """Statistics of the tensors of one copy, computed on demand."""

    __slots__ = ("_rows", "_source")
    nbytes = 0  # the batch counts the copy

    def __init__(self, copy: FlatCopy, sizes: list[int]) -> None:
        self._source = [(copy, sizes)]
        self._rows = np.empty((0, 0))

    def rows(self) -> NDArray[np.float64]:
        while self._source:  # the copy is released after it is read
            copy, sizes = self._source.pop()
            self._rows = segment_statistics(copy.array(), sizes)
        return self._rows
