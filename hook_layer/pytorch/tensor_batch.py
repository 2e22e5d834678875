"""Tensors that are captured together: one copy, or one kernel, for all of a device and type.

The training thread does a few things for each tensor only. Objects for single tensors are made by
the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture import CapturedTensor, StatisticsBatch
from hook_layer.collection_manager import TensorPlan
from hook_layer.pytorch.copies import PLAIN_TYPES, SMALL_BYTES, FlatCopy
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.statistics import DeviceRows
from hook_layer.pytorch.values import WHOLE, type_name
from hook_layer.statistics import segment_statistics

__all__ = ["TorchBatch", "join"]

_Planned = tuple[Tensor, TensorPlan]
_MOST_COPIED_BYTES: Final = 64 << 20
"""Of the copies of one capture; tensors beyond are captured one by one."""


def join(
    tensors: Mapping[str, _Planned], *, has_values: bool
) -> tuple[list[TorchBatch], dict[str, _Planned]]:
    """Return batches of the tensors that can be captured together, and the others.

    Together are dense ones of torch's own class whose statistics are stored. Their values may be
    stored if they are whole, and those of parameters: others share the number of their rows.

    Args:
        tensors: The tensors with what is stored of each.
        has_values: Whether values may be stored whole.
    """
    batches: dict[object, TorchBatch] = {}
    others: dict[str, _Planned] = {}
    num_bytes = 0
    for name, planned in tensors.items():
        value, plan = planned
        is_cpu, has_value = value.is_cpu, plan.raw
        is_joined = plan.is_whole_parameter and has_values if has_value else plan.is_statistics
        if not is_joined or not _is_plain(value):
            others[name] = planned
            continue
        if is_cpu or has_value:
            nbytes = value.nbytes
            if nbytes >= SMALL_BYTES or num_bytes + nbytes > _MOST_COPIED_BYTES:
                others[name] = planned
                continue
            num_bytes += nbytes
        key = value.dtype if is_cpu else (value.dtype, value.device, has_value)
        batch = batches.get(key)
        if batch is None:
            batch = batches[key] = TorchBatch()
        batch.append(name, value, plan)
    return [*batches.values()], others


def _is_plain(value: Tensor) -> bool:
    """Return whether a tensor is dense, of torch's own class and of a type that numpy has."""
    if type(value) not in WHOLE or value.dtype not in PLAIN_TYPES or value.is_neg():
        return False
    if value.is_cpu:
        return value.layout is torch.strided
    return value.is_cuda and value.is_contiguous() and value.numel() > 0


class TorchBatch:
    """Tensors of one device and type.

    Attributes:
        nbytes: Memory of the copies.
    """

    __slots__ = (
        *("_copy", "_dtype", "_names", "_places", "_plans", "_shapes", "_statistics", "_values"),
        "nbytes",
    )

    def __init__(self) -> None:
        self.nbytes = 0
        self._names: list[str] = []
        self._plans: list[TensorPlan] = []
        self._values: dict[int, Tensor] = {}  # by their ids: one may have several names
        self._places: list[int] = []
        self._shapes: list[torch.Size] = []
        self._dtype: torch.dtype | None = None
        self._copy: FlatCopy | None = None
        self._statistics: StatisticsBatch | None = None

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._names)

    def append(self, name: str, value: Tensor, plan: TensorPlan) -> None:
        """Add a tensor."""
        self._names.append(name)
        self._plans.append(plan)
        key = id(value)
        if key not in self._values:
            self._values[key] = value
        self._places.append(key)

    @property
    def is_cuda(self) -> bool:
        """Whether the tensors are on a CUDA device; known until they are captured."""
        return next(iter(self._values.values())).is_cuda

    def capture(self, batches: DeviceBatches) -> None:
        """Capture the tensors as they are now, and release them.

        Args:
            batches: What statistics on devices join.
        """
        values = [*self._values.values()]
        if len(values) == len(self._places):
            self._places = [*range(len(values))]
        else:
            places = {key: place for place, key in enumerate(self._values)}
            self._places = [places[key] for key in self._places]
        self._values = {}
        self._shapes = [value.shape for value in values]
        self._dtype = values[0].dtype
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
        dtype = "" if self._dtype is None else type_name(self._dtype)
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
    """Statistics of the tensors of one copy, computed when they are asked for."""

    __slots__ = ("_rows", "_source")
    nbytes = 0  # the batch counts the copy

    def __init__(self, copy: FlatCopy, sizes: list[int]) -> None:
        self._source = [(copy, sizes)]
        self._rows = np.empty((0, 0))

    def rows(self) -> NDArray[np.float64]:
        while self._source:  # the copy is released once it is read
            copy, sizes = self._source.pop()
            self._rows = segment_statistics(copy.array(), sizes)
        return self._rows
