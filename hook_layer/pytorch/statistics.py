"""The summaries of many torch tensors at once.

Of tensors in the host's memory numpy computes them, in place (`hook_layer.statistics`), or later
where a copy is made anyway. Tensors on an accelerator are reduced there, all together, and only the
writer waits for the results (`hook_layer.pytorch.device_statistics`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture import Snapshot, TensorStatistics
from hook_layer.pytorch.device_statistics import DeviceStatistics
from hook_layer.pytorch.values import SAVED_AS_FLOAT32, host_array, num_writes, plain
from hook_layer.statistics import CHUNK, NO_STATISTICS, array_statistics, chunked_statistics

__all__ = ["KnownStatistics", "TorchStatistics", "torch_statistics"]

_Entry: TypeAlias = "tuple[float, ...] | Snapshot | _DeviceRow"


@dataclass(frozen=True, slots=True)
class _DeviceRow:
    """Statistics on their way from a device: which of them."""

    batch: DeviceStatistics
    number: int


class TorchStatistics:
    """Statistics that are known, or come of snapshots or from devices when they are asked for.

    Args:
        entries: For each tensor where its row comes from.
    """

    __slots__ = ("_entries", "_known")

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._entries = entries
        self._known: TensorStatistics | None = None

    def rows(self) -> NDArray[np.float64]:
        """Return the statistics, [tensors, STATISTICS_COLUMNS]; waits for the devices."""
        if self._known is None:
            entries = [
                entry.batch.rows()[entry.number] if isinstance(entry, _DeviceRow) else entry
                for entry in self._entries
            ]
            self._known, self._entries = TensorStatistics(entries), ()
        return self._known.rows()


class KnownStatistics:
    """Statistics of tensors that were met before in a step, as long as nobody writes to them.

    The output of a layer is the input of the next one, and the output of those it is a part of.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[ReferenceType[Tensor], int, _Entry]] = {}

    def find(self, tensor: Tensor) -> _Entry | None:
        """Return what `note` was told of this tensor, if it is as it was then."""
        found = self._found.get(id(tensor))
        if found is None or found[0]() is not tensor or found[1] != num_writes(tensor):
            return None
        return found[2]

    def note(self, tensor: Tensor, entry: _Entry) -> None:
        """Remember where the statistics of a tensor come from."""
        if not tensor.is_inference():  # whoever writes to such a tensor leaves no trace
            self._found[id(tensor)] = ref(tensor), num_writes(tensor), entry

    def forget(self) -> None:
        """Forget all of them."""
        self._found.clear()


def torch_statistics(
    tensors: Sequence[Tensor],
    copies: Sequence[Snapshot | None] | None = None,
    known: KnownStatistics | None = None,
) -> TorchStatistics:
    """Return the statistics of tensors as they are now, in the order of the tensors.

    Args:
        tensors: Any shapes, types and devices.
        copies: For each tensor its snapshot, where there is one.
        known: Those met before.
    """
    known = KnownStatistics() if known is None else known
    entries: list[_Entry] = [NO_STATISTICS] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
    for position, tensor in enumerate(tensors):
        copy = None if copies is None else copies[position]
        if tensor.is_complex():
            continue
        if copy is not None and (tensor.is_cpu or tensor.numel() == 1):
            entries[position] = copy
        elif (found := known.find(tensor)) is not None:
            entries[position] = found
        elif tensor.is_cpu or tensor.numel() == 0:
            entries[position] = row = _host_statistics(tensor)
            known.note(tensor, row)
        else:
            flat = _flat(tensor)
            groups.setdefault((flat.device, flat.dtype), []).append((position, flat))
    for group in groups.values():
        batch = DeviceStatistics([flat for _, flat in group])
        for number, (position, _) in enumerate(group):
            entries[position] = of_device = _DeviceRow(batch, number)
            known.note(tensors[position], of_device)
    return TorchStatistics(entries)


def _host_statistics(tensor: Tensor) -> tuple[float, ...]:
    value = plain(tensor)
    if value.dtype not in SAVED_AS_FLOAT32:
        return array_statistics(host_array(value))
    flat = _flat(value)

    def chunks() -> Iterator[NDArray[Any]]:
        for start in range(0, flat.numel(), CHUNK):
            yield host_array(flat[start : start + CHUNK].to(torch.float32))

    return chunked_statistics(flat.numel(), chunks)


def _flat(tensor: Tensor) -> Tensor:
    """Return the elements in any order, [size], without a copy if possible."""
    value = plain(tensor)
    if value.is_contiguous():
        return value.view(-1)
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda axis: strides[axis], reverse=True)
    return value.permute(order).reshape(-1)
