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
_GPU_COMMAND: Final = (
    *("nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total"),
    "--format=csv,noheader,nounits",
)


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
        self._has_gpus = shutil.which(_GPU_COMMAND[0]) is not None
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
        memory, disk = psutil.virtual_memory(), psutil.disk_usage(".")
        return {
            "Time": round(time.time(), 3),
            "CpuPercent": psutil.cpu_percent(),
            "MemoryBytes": memory.total - memory.available,
            "MemoryPercent": memory.percent,
            "DiskBytes": disk.used,
            "DiskPercent": disk.percent,
            "Gpus": self._gpus() if self._has_gpus else [],
        }

    def _gpus(self) -> Sequence[dict[str, float]]:
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            done = subprocess.run(  # noqa: S603 - constant arguments
                _GPU_COMMAND, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=True
            )
            return gpu_samples(done.stdout)
        self._has_gpus = False  # no driver, or a GPU that does not measure
        return []


def gpu_samples(text: str) -> list[dict[str, float]]:
    """Parse the lines of nvidia-smi: use in percent, used and total memory in MiB.

    Raises:
        ValueError: A GPU does not measure one of them.
    """
    rows = [[float(value) for value in line.split(",")] for line in text.splitlines() if line]
    return [
        {"Percent": use, "MemoryBytes": used * _MIB, "MemoryPercent": round(100 * used / total, 1)}
        for use, used, total in rows
    ]
