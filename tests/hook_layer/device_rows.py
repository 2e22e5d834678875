"""Statistics of tensors without a hook."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hook_layer.capture.captured_step import Snapshot, StatisticsBatch
from hook_layer.pytorch.copies import BufferPool
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.tensor_backend import TorchBackend

__all__ = ["device_statistics", "torch_statistics"]


def device_statistics(tensors: Sequence[Tensor]) -> list[tuple[float, ...]]:
    """Return one row per tensor, by the kernels for devices.

    The tensors [size] are flat, of one device and type, and none is empty.
    """
    batch, first, _ = DeviceBatches().add(tensors)
    return batch.rows()[first:]


def torch_statistics(
    tensors: Sequence[Tensor], copies: Sequence[Snapshot | None] | None = None
) -> StatisticsBatch:
    """Return the statistics of tensors of any shapes, types and devices."""
    backend = TorchBackend(BufferPool(0), DeviceBatches())
    return backend.statistics(tensors, copies or [None] * len(tensors))
