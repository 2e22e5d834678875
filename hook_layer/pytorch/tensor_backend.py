"""Captures torch tensors one by one: copies, reductions and statistics.

The writer computes statistics of small tensors on the host, from one copy. Large host tensors are
read in place. Statistics of tensors on an accelerator are computed there, all together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture.captured_step import Snapshot, StatisticsBatch, TensorStatistics
from hook_layer.capture.reductions import Reduction
from hook_layer.capture.statistics import CHUNK, NO_STATISTICS, array_statistics, chunked_statistics
from hook_layer.pytorch.copies import BufferPool, LargeCopy, copied, copied_together, is_small
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.tensor_elements import (
    SAVED_AS_FLOAT32,
    host_array,
    plain,
    storable,
    type_name,
)

__all__ = ["TorchBackend"]

_METHODS: Final = {"variance": "var"}
_OF_SPREAD: Final = ("std", "variance")
_OF_ANY_NUMBERS: Final = ("min", "max", "sum", "prod")
_NORMS: Final = {"l1": 1, "l2": 2}
_MOST_COPIED_BYTES: Final = 64 << 20
"""Maximum size of small tensors that are copied for the writer; further ones are read at once."""
_Entry: TypeAlias = "tuple[float, ...] | Callable[[], tuple[float, ...]] | Snapshot"


class TorchBackend:
    """Captures torch tensors."""

    def __init__(self, pool: BufferPool, batches: DeviceBatches) -> None:
        self._pool = pool
        self._batches = batches

    def describe(self, value: Tensor) -> tuple[str, tuple[int, ...]]:
        """Return type name and shape, e.g. `("bfloat16", (8, 3))`."""
        return type_name(value.dtype), tuple(map(int, value.shape))

    def statistics(
        self, values: Sequence[Tensor], copies: Sequence[Snapshot | None]
    ) -> StatisticsBatch:
        """Compute the statistics of several tensors now, or leave them to the writer.

        A tensor that occurs several times is read once.
        """
        entries: dict[int, _Entry] = {}  # by the id of the tensor
        on_host: dict[int, Tensor] = {}
        groups: dict[tuple[torch.device, torch.dtype], dict[int, Tensor]] = {}
        for tensor, copy in zip(values, copies, strict=True):
            key = id(tensor)
            if key in entries:
                continue
            entries[key] = NO_STATISTICS
            if tensor.is_complex():
                continue
            if copy is not None and (tensor.is_cpu or tensor.numel() == 1):
                entries[key] = copy
            elif tensor.is_cpu or tensor.numel() == 0:
                on_host[key] = tensor
            else:
                flat = _flat(tensor).resolve_neg().contiguous()
                groups.setdefault((flat.device, flat.dtype), {})[key] = flat
        nbytes = _add_host_statistics(entries, on_host) if on_host else 0
        for group in groups.values():
            batch, first, num_bytes = self._batches.add([*group.values()])
            nbytes += num_bytes
            entries.update((key, partial(batch.row, first + n)) for n, key in enumerate(group))
        return TensorStatistics([entries[id(tensor)] for tensor in values], nbytes)

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


def _add_host_statistics(entries: dict[int, _Entry], tensors: Mapping[int, Tensor]) -> int:
    """Copy small tensors for the writer, read large ones, and return the size of the copies."""
    small: dict[int, Tensor] = {}
    nbytes = 0
    for key, tensor in tensors.items():
        if nbytes < _MOST_COPIED_BYTES and is_small(tensor):
            small[key] = storable(tensor)
            nbytes += small[key].nbytes
        else:
            entries[key] = _host_statistics(tensor)
    entries.update(zip(small, copied_together([*small.values()]), strict=True))
    return nbytes


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
