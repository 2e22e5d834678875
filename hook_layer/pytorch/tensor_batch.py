"""Tensors that are captured together: one copy, or one kernel, for all of a device and type.

The training thread does a few things for each tensor only. Objects for single tensors are made by
the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import Tensor

from hook_layer.capture import CapturedTensor, StatisticsBatch, TensorStatistics
from hook_layer.collection_manager import TensorPlan
from hook_layer.pytorch.copies import PLAIN_TYPES, FlatCopy, is_small
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.statistics import DeviceRows
from hook_layer.pytorch.values import WHOLE, type_name

__all__ = ["TorchBatch", "divided"]

_Planned = tuple[Tensor, TensorPlan]
_MOST_COPIED_BYTES: Final = 64 << 20
"""Of a batch; tensors beyond are captured one by one."""


def divided(
    tensors: Mapping[str, _Planned], *, has_values: bool
) -> tuple[dict[str, _Planned], dict[str, _Planned]]:
    """Return the tensors that can be captured together, and the others.

    Args:
        tensors: The tensors with what is stored of each.
        has_values: Whether values may be stored whole.
    """
    together: dict[str, _Planned] = {}
    others: dict[str, _Planned] = {}
    num_bytes = 0
    for name, planned in tensors.items():
        value, plan = planned
        is_copied = plan.raw or value.is_cpu
        is_joined = _is_plain(value) and _is_simple(plan, has_values=has_values)
        if is_joined and is_copied:
            is_joined = is_small(value) and num_bytes < _MOST_COPIED_BYTES
            num_bytes += value.nbytes if is_joined else 0
        (together if is_joined else others)[name] = planned
    return together, others


def _is_plain(value: Tensor) -> bool:
    """Return whether a tensor is dense, of torch's own class and of a type that numpy has."""
    if type(value) not in WHOLE or value.dtype not in PLAIN_TYPES or value.is_neg():
        return False
    return value.is_cpu or (value.is_cuda and value.is_contiguous() and value.numel() > 0)


def _is_simple(plan: TensorPlan, *, has_values: bool) -> bool:
    """Return whether statistics are stored, and a value only if it is whole and a parameter's.

    Other values share the number of their rows with each other.
    """
    if plan.reductions or plan.summaries:
        return False
    return not plan.raw or (has_values and plan.is_of_parameter and plan.raw_max_elements is None)


class TorchBatch:
    """Tensors of one device and type.

    Args:
        tensors: The tensors with what is stored of each.
        batches: What statistics on devices join.

    Attributes:
        nbytes: Memory of the copies.
    """

    __slots__ = (
        "_copy",
        "_dtype",
        "_names",
        "_places",
        "_plans",
        "_shapes",
        "_statistics",
        "nbytes",
    )

    def __init__(self, tensors: Mapping[str, _Planned], batches: DeviceBatches) -> None:
        values: list[Tensor] = []
        places: dict[int, int] = {}  # by the id of the tensor: it may have several names
        self._places: list[int] = []
        for value, _ in tensors.values():
            place = places.setdefault(id(value), len(values))
            if place == len(values):
                values.append(value)
            self._places.append(place)
        self._names = list(tensors)
        self._plans = [plan for _, plan in tensors.values()]
        self._shapes = [value.shape for value in values]
        self._dtype = values[0].dtype
        self._copy: FlatCopy | None = None
        self._statistics: DeviceRows | None = None
        if values[0].is_cuda:
            flat = [value.detach().view(-1) for value in values]
            self._statistics = DeviceRows(*batches.add(flat))
            self.nbytes = self._statistics.nbytes
        if not values[0].is_cuda or any(plan.raw for plan in self._plans):
            self._copy = FlatCopy(values)
            self.nbytes = self._copy.nbytes

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._names)

    def tensors(self) -> dict[str, CapturedTensor]:
        """Return the tensors by name."""
        copies = [] if self._copy is None else self._copy.segments(self._shapes)
        statistics: StatisticsBatch = self._statistics or TensorStatistics(copies)
        dtype = type_name(self._dtype)
        shapes = [tuple(shape) for shape in self._shapes]
        return {
            name: CapturedTensor(
                dtype,
                shapes[place],
                raw=copies[place] if plan.raw else None,
                is_of_parameter=plan.is_of_parameter,
                statistics=statistics,
                row=place,
            )
            for name, plan, place in zip(self._names, self._plans, self._places, strict=True)
        }
