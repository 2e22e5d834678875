"""Records the use of the machine while a command runs, in `system_metrics.jsonl`."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psutil

from hook_layer.storage.base import Store

__all__ = ["SYSTEM_METRICS_FILE", "SystemMetrics"]

SYSTEM_METRICS_FILE: Final = "system_metrics.jsonl"
"""One sample a line."""
_MAX_SAMPLES: Final = 1000
"""Samples of a session; a longer one keeps every second, fourth, ... sample."""
_MIB: Final = 1 << 20
_GPU_TIMEOUT_S: Final = 5.0
_MAX_FAILURES: Final = 3
"""Failures of nvidia-smi in a row after which it is not called any more."""
_GPU_COMMAND: Final = (
    *("nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total"),
    "--format=csv,noheader,nounits",
)

_GpuSample = dict[str, float | None]


class SystemMetrics:
    """Samples the use of CPU, memory, disk and GPUs.

    Args:
        store: The session's folder.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: list[bytes] = []
        self._spacing = 1
        self._num_calls = 0
        self._num_failures = 0 if shutil.which(_GPU_COMMAND[0]) else _MAX_FAILURES
        psutil.cpu_percent()  # the next call returns the use since this one

    def sample(self) -> None:
        """Take a sample, and write the file.

        Raises:
            StorageError: The file cannot be written.
        """
        self._num_calls += 1
        if (self._num_calls - 1) % self._spacing:
            return
        self._lines.append(json.dumps(self._sample()).encode() + b"\n")
        if len(self._lines) >= _MAX_SAMPLES:
            del self._lines[1::2]
            self._spacing *= 2
        self._store.put(SYSTEM_METRICS_FILE, b"".join(self._lines))

    def _sample(self) -> dict[str, Any]:
        memory, disk = psutil.virtual_memory(), None
        with suppress(OSError):  # the folder was removed
            disk = psutil.disk_usage(".")
        return {
            "Time": round(time.time(), 3),
            "CpuPercent": psutil.cpu_percent(),
            "MemoryBytes": memory.total - memory.available,
            "MemoryPercent": memory.percent,
            "DiskBytes": None if disk is None else disk.used,
            "DiskPercent": None if disk is None else disk.percent,
            "Gpus": self._gpus() if self._num_failures < _MAX_FAILURES else [],
        }

    def _gpus(self) -> Sequence[_GpuSample]:
        try:
            done = subprocess.run(  # noqa: S603 - constant arguments
                _GPU_COMMAND, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=True
            )
            self._num_failures = 0
            return gpu_samples(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError):  # no driver, or one that starts
            self._num_failures += 1
            return []


def gpu_samples(text: str) -> list[_GpuSample]:
    """Parse the lines of nvidia-smi: use in percent, used and total memory in MiB.

    What a GPU does not measure, such as a part of one, is None.

    Raises:
        ValueError: A line does not have these three values.
    """
    samples: list[_GpuSample] = []
    for line in filter(None, text.splitlines()):
        use, used, total = map(_number, line.split(","))
        share = None if used is None or not total else round(100 * used / total, 1)
        used_bytes = None if used is None else used * _MIB
        samples.append({"Percent": use, "MemoryBytes": used_bytes, "MemoryPercent": share})
    return samples


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None
