"""Copies, reductions and statistics of torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from hook_layer.capture.captured_step import Snapshot, StatisticsBatch
from hook_layer.capture.reductions import Reduction
from hook_layer.pytorch.copies import BufferPool, LargeCopy, copied, storable
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.statistics import torch_statistics
from hook_layer.pytorch.values import plain, type_name

__all__ = ["TorchBackend"]

_METHODS: Final = {"variance": "var"}
_OF_SPREAD: Final = ("std", "variance")
_OF_ANY_NUMBERS: Final = ("min", "max", "sum", "prod")
_NORMS: Final = {"l1": 1, "l2": 2}


class TorchBackend:
    """Captures torch tensors."""

    def __init__(self, pool: BufferPool, batches: DeviceBatches | None = None) -> None:
        self._pool = pool
        self._batches = batches

    def describe(self, value: Tensor) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape, e.g. `("bfloat16", (8, 3))`."""
        return type_name(value.dtype), tuple(map(int, value.shape))

    def statistics(
        self, values: Sequence[Tensor], copies: Sequence[Snapshot | None]
    ) -> StatisticsBatch:
        """Compute the statistics of several tensors now, or leave them to the writer."""
        return torch_statistics(values, copies, self._batches)

    def snapshots(self, values: Sequence[Tensor], rows: Sequence[int | None]) -> Sequence[Snapshot]:
        """Copy tensors to the host, in C order; convert bfloat16 and 8-bit floats to float32."""
        pairs = zip(values, rows, strict=True)
        return copied([storable(v if n is None else plain(v)[:n]) for v, n in pairs], self._pool)

    def reduce(self, value: Tensor, reduction: Reduction) -> Snapshot:
        """Reduce a tensor by torch's definitions (std and variance divide by n - 1)."""
        name, absolute = reduction
        with torch.no_grad():
            values = storable(value)
            if not (values.is_floating_point() or values.is_complex() or name in _OF_ANY_NUMBERS):
                values = values.double()
            if absolute and values.dtype != torch.bool:
                values = values.abs()
            return LargeCopy(_reduced(values, name).detach(), self._pool)


def _reduced(values: Tensor, name: str) -> Tensor:
    reduced: Tensor
    if name in _NORMS:
        reduced = torch.linalg.vector_norm(values, _NORMS[name])
    elif name == "median":
        # Like numpy, return the mean of both middle values; torch's own median is the lower one.
        reduced = values.median() / 2 - values.neg().median() / 2
    elif name in _OF_SPREAD and values.numel() == 1:  # torch warns for one element
        reduced = torch.full_like(values, torch.nan).reshape(())
    else:
        reduced = getattr(values, _METHODS.get(name, name))()
    return reduced
