"""The summaries of many torch tensors at once.

Of tensors in the host's memory numpy computes them, in place (`hook_layer.statistics`), or later
where a copy is made anyway. Tensors on an accelerator are reduced there, all together, and only the
writer waits for the results (`hook_layer.pytorch.device_statistics`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture import Snapshot, TensorStatistics
from hook_layer.pytorch.device_statistics import DeviceStatistics
from hook_layer.pytorch.values import SAVED_AS_FLOAT32, host_array, plain
from hook_layer.statistics import CHUNK, NO_STATISTICS, array_statistics, chunked_statistics

__all__ = ["TorchStatistics", "torch_statistics"]


class TorchStatistics:
    """Statistics that are known, or come of snapshots or from devices when they are asked for.

    Args:
        entries: For each tensor its row, or its snapshot.
        on_devices: Which tensors have theirs on the way from a device, and these.
    """

    __slots__ = ("_entries", "_known", "_on_devices")

    def __init__(
        self,
        entries: list[tuple[float, ...] | Snapshot],
        on_devices: Sequence[tuple[Sequence[int], DeviceStatistics]],
    ) -> None:
        self._entries = entries
        self._on_devices = on_devices
        self._known: TensorStatistics | None = None

    def rows(self) -> NDArray[np.float64]:
        """Return the statistics, [tensors, STATISTICS_COLUMNS]; waits for the devices."""
        if self._known is None:
            for positions, statistics in self._on_devices:
                for position, row in zip(positions, statistics.rows(), strict=True):
                    self._entries[position] = row
            self._known, self._entries, self._on_devices = TensorStatistics(self._entries), [], ()
        return self._known.rows()


def torch_statistics(
    tensors: Sequence[Tensor], copies: Sequence[Snapshot | None] | None = None
) -> TorchStatistics:
    """Return the statistics of tensors as they are now, in the order of the tensors.

    Args:
        tensors: Any shapes, types and devices.
        copies: For each tensor its snapshot, where there is one.
    """
    rows: list[tuple[float, ...] | Snapshot] = [NO_STATISTICS] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
    for position, tensor in enumerate(tensors):
        copy = None if copies is None else copies[position]
        if tensor.is_complex():
            continue
        if copy is not None and (tensor.is_cpu or tensor.numel() == 1):
            rows[position] = copy
        elif tensor.is_cpu or tensor.numel() == 0:
            rows[position] = _host_statistics(tensor)
        else:
            flat = _flat(tensor)
            groups.setdefault((flat.device, flat.dtype), []).append((position, flat))
    on_devices = []
    for group in groups.values():
        positions, flats = zip(*group, strict=True)
        on_devices.append((positions, DeviceStatistics(flats)))
    return TorchStatistics(rows, on_devices)


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
