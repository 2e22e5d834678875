"""Statistics of many tensors on accelerators, on their way to the host: only a reader waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hook_layer.capture.statistics import NO_STATISTICS
from hook_layer.pytorch.copies import HostCopy, not_disturbing_recordings
from hook_layer.pytorch.device_kernels import combined, partial_results

__all__ = ["DeviceBatches", "DeviceRows", "DeviceStatistics"]

logger = logging.getLogger("stepwatch")


class DeviceStatistics:
    """Statistics of tensors of several calls, in transfer from a device.

    A CUDA stream computes them, if the device has one.
    """

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # training must not wait for a waiting reader
        self._sizes: list[int] = []
        self._num_rows: list[int] = []
        self._partials: list[Tensor] = []
        self._is_sent = False
        self._copy: HostCopy | None = None
        self._known: list[tuple[float, ...]] | None = None

    def add(self, tensors: Sequence[Tensor]) -> tuple[int, int] | None:
        """Start computing the statistics of tensors, which may be changed afterwards.

        The tensors [size] are flat, not empty, of real numbers or booleans, and of one device and
        type.

        Returns:
            The row of the first tensor, and the bytes used; None if all was sent already.
        """
        sizes = [tensor.numel() for tensor in tensors]
        partials, num_rows = partial_results(tensors, self._stream)
        with self._lock:
            if self._is_sent:
                return None
            first = len(self._sizes)
            self._sizes += sizes
            self._num_rows += num_rows
            self._partials.append(partials)
        return first, partials.nbytes

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

    def row(self, number: int) -> tuple[float, ...]:
        """Return the statistics of one tensor; waits for the device."""
        return self.rows()[number]

    def _read(self) -> list[tuple[float, ...]]:
        if self._copy is None:
            return [NO_STATISTICS] * len(self._sizes)
        partials = self._copy.array().astype(np.float64, copy=False)
        return combined(self._sizes, self._num_rows, partials)


class DeviceBatches:
    """Statistics on devices that are not sent to the host yet.

    Attributes:
        open: Batches of the current step, by device and stream.
    """

    def __init__(self) -> None:
        self.open: dict[tuple[torch.device, int], DeviceStatistics] = {}
        self._lock = threading.Lock()

    def add(self, tensors: Sequence[Tensor]) -> tuple[DeviceStatistics, int, int]:
        """Same as `DeviceStatistics.add`; also return the batch that has the tensors."""
        device = tensors[0].device
        stream: Any = torch.cuda.current_stream(device) if device.type == "cuda" else None
        key = device, 0 if stream is None else stream.cuda_stream
        while True:
            with self._lock:
                batch = self.open.get(key)
                if batch is None:
                    batch = self.open[key] = DeviceStatistics(stream)
            added = batch.add(tensors)
            if added is not None:
                return batch, *added
            with self._lock:
                if self.open.get(key) is batch:
                    del self.open[key]

    def send(self) -> bool:
        """Send all added statistics to the host; return False if some could not be sent."""
        is_sent = [batch.send() for batch in self.forget()]
        return all(is_sent)

    def forget(self) -> list[DeviceStatistics]:
        """Release and return what was not sent; readers send it when they read."""
        with self._lock:
            batches = list(self.open.values())
            self.open.clear()
        return batches


@dataclass(slots=True)
class DeviceRows:
    """Statistics of several tensors in a batch, from the row `first` on."""

    batch: DeviceStatistics
    first: int
    nbytes: int

    def rows(self) -> NDArray[np.float64]:
        """Return the statistics, [tensors or more, STATISTICS_COLUMNS]; waits for the device."""
        return np.array(self.batch.rows()[self.first :], np.float64)


@cache
def _warn_of_loss() -> None:
    """Log once that a writer thread could not copy statistics from the device."""
    logger.warning(
        "statistics are lost and become NaN, because a CUDA graph was being captured in "
        "their stream"
    )
