"""Statistics by the kernels for devices, of tensors on any device."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hook_layer.pytorch.device_statistics import DeviceBatches

__all__ = ["device_statistics"]


def device_statistics(tensors: Sequence[Tensor]) -> list[tuple[float, ...]]:
    """Return one row per tensor: flat tensors [size] of one device and type, none empty."""
    batch, first, _ = DeviceBatches().add(tensors)
    return batch.rows()[first:]
