"""The summaries of many torch tensors at once.

Of tensors in the host's memory numpy computes them, in place (`hook_layer.statistics`), or later
where a copy is made anyway. Tensors on an accelerator are reduced there, all together, and only the
writer waits for the results (`hook_layer.pytorch.device_statistics`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture import Snapshot, TensorStatistics
from hook_layer.pytorch.device_statistics import DeviceBatches, DeviceStatistics
from hook_layer.pytorch.values import SAVED_AS_FLOAT32, host_array, plain
from hook_layer.statistics import CHUNK, NO_STATISTICS, array_statistics, chunked_statistics

__all__ = ["TorchStatistics", "torch_statistics"]

_Entry: TypeAlias = "tuple[float, ...] | Snapshot | _DeviceRow"


@dataclass(slots=True)
class _DeviceRow:
    """Statistics on their way from a device: which of them."""

    batch: DeviceStatistics
    number: int


class TorchStatistics:
    """Statistics that are known, or come of snapshots or from devices when they are asked for.

    Args:
        entries: For each tensor where its row comes from.
        nbytes: Memory of the host that those on their way from devices take up.
    """

    __slots__ = ("_entries", "_known", "nbytes")

    def __init__(self, entries: Sequence[_Entry], nbytes: int) -> None:
        self._entries = entries
        self.nbytes = nbytes
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


def torch_statistics(
    tensors: Sequence[Tensor],
    copies: Sequence[Snapshot | None] | None = None,
    batches: DeviceBatches | None = None,
) -> TorchStatistics:
    """Return the statistics of tensors as they are now, in the order of the tensors.

    Args:
        tensors: Any shapes, types and devices.
        copies: For each tensor its snapshot, where there is one.
        batches: What those on devices join, to be sent to the host with others.
    """
    entries: list[_Entry] = [NO_STATISTICS] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
    for position, tensor in enumerate(tensors):
        copy = None if copies is None else copies[position]
        if tensor.is_complex():
            continue
        if copy is not None and (tensor.is_cpu or tensor.numel() == 1):
            entries[position] = copy
        elif tensor.is_cpu or tensor.numel() == 0:
            entries[position] = _host_statistics(tensor)
        else:
            flat = _flat(tensor).resolve_neg().contiguous()
            groups.setdefault((flat.device, flat.dtype), []).append((position, flat))
    nbytes = 0
    batches = DeviceBatches() if batches is None else batches
    for group in groups.values():
        batch, first, num_bytes = batches.add([flat for _, flat in group])
        nbytes += num_bytes
        for number, (position, _) in enumerate(group):
            entries[position] = _DeviceRow(batch, first + number)
    return TorchStatistics(entries, nbytes)


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
