"""Computes statistics of many tensors on accelerators, without waiting for them.

The flattened tensors are reduced as one matrix with rows of `ROW` elements: by a few dozen kernels,
or by one on CUDA. Shapes: T tensors, P rows in total.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from hook_layer.capture.statistics import NO_STATISTICS
from hook_layer.pytorch.fused_statistics import fused_partials
from hook_layer.pytorch.host_copy import HostCopy, not_disturbing_recordings
from hook_layer.pytorch.partial_results import combined

__all__ = ["ROW", "DeviceBatches", "DeviceStatistics", "device_statistics"]

logger = logging.getLogger("stepwatch")

ROW: Final = 8192
_MAX_ROWS: Final = 1024  # rows reduced at a time, to limit device memory
_COMPUTED_IN_FLOAT32: Final = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.bool, torch.uint8, torch.int8}
)


def device_statistics(tensors: Sequence[Tensor]) -> list[tuple[float, ...]]:
    """Return the statistics of tensors of one device and type, one row per tensor.

    Args:
        tensors: Flat tensors [size] of real numbers or booleans, none empty.
    """
    batch, first, _ = DeviceBatches().add(tensors)
    return batch.rows()[first:]


class DeviceStatistics:
    """Statistics of tensors of several calls, in transfer from a device.

    Args:
        stream: The CUDA stream that computes them; None on other devices.
    """

    __slots__ = (
        "_copy",
        "_is_sent",
        "_known",
        "_lock",
        "_num_rows",
        "_partials",
        "_reading",
        "_sizes",
        "_stream",
    )

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._reading = (
            threading.Lock()
        )  # training must not wait for a thread that waits for the device
        self._sizes: list[int] = []
        self._num_rows: list[int] = []
        self._partials: list[Tensor] = []
        self._is_sent = False
        self._copy: HostCopy | None = None
        self._known: list[tuple[float, ...]] | None = None

    def add(self, tensors: Sequence[Tensor]) -> tuple[int, int] | None:
        """Start computing the statistics of tensors.

        Args:
            tensors: Flat, non-empty tensors [size] of real numbers or booleans, of one device and
                type. The caller may change them afterwards.

        Returns:
            The row of the first tensor, and the bytes used; None if the statistics were already
            sent.
        """
        sizes = [tensor.numel() for tensor in tensors]
        fused = fused_partials(tensors, self._stream)
        if fused is None:
            partials = torch.cat([_partials(group) for group in _groups(tensors)])
            fused = partials, [-(-size // ROW) for size in sizes]
        with self._lock:
            if self._is_sent:
                return None
            first = len(self._sizes)
            self._sizes += sizes
            self._num_rows += fused[1]
            self._partials.append(fused[0])
        return first, fused[0].nbytes

    def send(self) -> bool:
        """Send the added statistics to the host; return False if a CUDA graph prevents that."""
        with self._lock:
            if self._is_sent:
                return True
            self._is_sent = True
            partials, self._partials = self._partials, []
            if not partials:
                return True
            stream = nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
            with not_disturbing_recordings(), stream:
                if partials[0].is_cuda and torch.cuda.is_current_stream_capturing():
                    return False  # a CUDA graph would send it at each replay, and not before
                try:
                    self._copy = HostCopy(torch.cat(partials))
                except Exception:
                    # Keep the results, so that the reader can try again.
                    self._is_sent, self._partials = False, partials
                    raise
            return True

    def rows(self) -> list[tuple[float, ...]]:
        """Return the statistics, one row per tensor; waits for the device."""
        with self._reading:
            if self._known is None:
                if not self.send():
                    _warn_of_loss()
                self._known = self._read()
                self._copy = None
            return self._known

    def _read(self) -> list[tuple[float, ...]]:
        if self._copy is None:
            return [NO_STATISTICS] * len(self._sizes)
        partials = self._copy.array().astype(np.float64, copy=False)
        return combined(self._sizes, self._num_rows, partials)


class DeviceBatches:
    """Statistics on devices that are not sent to the host yet."""

    def __init__(self) -> None:
        self._open: dict[tuple[torch.device, int], DeviceStatistics] = {}
        self._lock = threading.Lock()

    def add(self, tensors: Sequence[Tensor]) -> tuple[DeviceStatistics, int, int]:
        """Start computing the statistics of tensors.

        Args:
            tensors: As for `DeviceStatistics.add`.

        Returns:
            The batch, the row of the first tensor in it, and the bytes used.
        """
        device = tensors[0].device
        stream: Any = torch.cuda.current_stream(device) if device.type == "cuda" else None
        key = device, 0 if stream is None else stream.cuda_stream
        while True:
            with self._lock:
                batch = self._open.get(key)
                if batch is None:
                    batch = self._open[key] = DeviceStatistics(stream)
            added = batch.add(tensors)
            if added is not None:
                return batch, *added
            with self._lock:
                if self._open.get(key) is batch:
                    del self._open[key]

    def send(self) -> bool:
        """Send all added statistics to the host; return False if some could not be sent."""
        is_sent = [batch.send() for batch in self._taken()]
        return all(is_sent)

    def forget(self) -> None:
        """Release batches that were not sent; their readers send them when they read."""
        self._taken()

    def _taken(self) -> list[DeviceStatistics]:
        with self._lock:
            batches = list(self._open.values())
            self._open.clear()
        return batches


@cache
def _warn_of_loss() -> None:
    """Log once that a writer thread could not copy statistics from the device."""
    logger.warning(
        "statistics are lost and become NaN, because a CUDA graph was being captured in "
        "their stream"
    )


def _groups(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Divide the tensors' elements, in order, into lists of at most `_MAX_ROWS` rows."""
    group: list[Tensor] = []
    free = _MAX_ROWS
    for tensor in tensors:
        start, size = 0, tensor.numel()
        while start < size:
            stop = min(size, start + free * ROW)
            group.append(tensor if stop - start == size else tensor[start:stop])
            free -= -(-(stop - start) // ROW)
            start = stop
            if not free:
                yield group
                group, free = [], _MAX_ROWS
    if group:
        yield group


def _partials(parts: Sequence[Tensor]) -> Tensor:
    """Return the partial results of all rows, [P, 10]."""
    first = parts[0]
    sizes = tuple(part.numel() for part in parts)
    mps = first.device.type == "mps"  # has no float64
    work = torch.float32 if mps or first.dtype in _COMPUTED_IN_FLOAT32 else torch.float64
    if len(parts) == 1 and (sizes[0] <= ROW or sizes[0] % ROW == 0):
        return _reduced(first.to(work).view(-1, min(sizes[0], ROW)), None)
    lasts, lengths = _layout(sizes)
    zeros = torch.zeros(ROW, dtype=first.dtype, device=first.device)
    filled = [part for pair in zip(parts, (zeros[n:] for n in lasts), strict=True) for part in pair]
    own = torch.tensor(lengths, device="cpu").to(first.device, non_blocking=True)
    inside = torch.arange(ROW, device=first.device) < own[:, None]
    return _reduced(torch.cat(filled).to(work).view(-1, ROW), inside)


@lru_cache(maxsize=64)
def _layout(sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return the number of elements in each tensor's last row, and in every row."""
    lasts = [(size - 1) % ROW + 1 for size in sizes]
    lengths: list[int] = []
    for size, last in zip(sizes, lasts, strict=True):
        lengths += [ROW] * ((size - 1) // ROW) + [last]
    return lasts, lengths


def _reduced(values: Tensor, inside: Tensor | None) -> Tensor:
    """Return the partial results of the rows of a matrix.

    Args:
        values: The elements, [P, up to ROW].
        inside: Mask of the elements that count, [P, up to ROW]; None for all.

    Returns:
        For each row, [P, 10]: number of finite elements, number of NaN, min and max of the finite
        elements, and a factor. Then, for the finite elements times this factor: sum, its rounding
        error, approximate mean, l1 norm, and sum of squared deviations from that mean.
    """
    work = values.dtype
    wide = work if values.device.type == "mps" else torch.float64
    finite = (values - values).eq_(0).bool()
    if inside is not None:
        finite &= inside
    count = finite.sum(1, dtype=work)
    num_nan = values.ne(values).sum(1, dtype=work)
    low = values.where(finite, torch.inf).amin(1)
    high = values.where(finite, -torch.inf).amax(1)
    limit = 126 if work == torch.float32 else 1022
    largest = torch.maximum(high, -low).clamp_(min=0)
    factor = largest.log2_().floor_().clamp_(-limit, limit).neg_().exp2_()
    scaled = values.where(finite, 0).mul_(factor[:, None])
    absolute = scaled.abs().sum(1)
    exact = scaled.sum(1, dtype=wide)
    total = exact.to(work)
    rest = (exact - total).to(work)
    mean = total / count.clamp(min=1)
    squared = scaled.sub_(mean[:, None]).mul_(finite).square_().sum(1)
    columns = [count, num_nan, low, high, factor, total, rest, mean, absolute, squared]
    return torch.stack(columns, dim=1)
