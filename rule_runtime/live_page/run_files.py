"""Reads the small files beside a run: environment, system metrics and console output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from hook_layer.format.errors import FormatError
from hook_layer.format.json_document import load_json
from hook_layer.storage.base import StorageError, Store
from rule_runtime.embedded.console_log import CONSOLE_LOG
from rule_runtime.embedded.system_metrics import SYSTEM_METRICS_FILE
from rule_runtime.live_page.run_columns import RunColumns
from rule_runtime.reporting.pixel_columns import Points
from rule_runtime.trial.run_settings import read_environment

__all__ = ["console_output", "merged_environment", "plain", "system_curves"]

_MAX_CONSOLE_BYTES: Final = 1 << 20
_MAX_CONSOLE_SHOWN: Final = 64 << 10
"""Bytes of the console output that a page shows: the last ones."""
_MAX_METRICS_BYTES: Final = 2 << 20
"""A thousand samples of a machine with sixteen GPUs."""
_MAX_GPUS: Final = 16
_FACTS: Final = (
    *("Command", "WorkingDirectory", "Git", "Python", "Host", "Platform", "Cpus", "Gpus"),
    "WorldSize",
)


def merged_environment(stores: Sequence[Store]) -> dict[str, Any]:
    """Return `environment.json` of a session and of its run; the run's members win.

    Unreadable files are skipped.
    """
    found: dict[str, Any] = {}
    for store in stores:
        with suppress(StorageError, FormatError):
            found |= read_environment(store)
    known = {name: plain(found[name]) for name in _FACTS if found.get(name) not in (None, [], "")}
    packages = plain(found.get("Packages"))
    if isinstance(packages, dict):
        known["Packages"] = {name: str(version) for name, version in packages.items()}
    return known


def plain(value: Any, depth: int = 2) -> Any:
    """Return JSON of a file without numbers that JSON lacks, and without deeper levels."""
    if isinstance(value, Mapping) and depth:
        return {str(name): plain(each, depth - 1) for name, each in value.items()}
    if isinstance(value, list) and depth:
        return [plain(each, depth - 1) for each in value]
    is_number = isinstance(value, float) and math.isfinite(value)
    if value is None or is_number or isinstance(value, (str, int)):
        return value
    return str(value) if isinstance(value, float) else "\u2026"


def console_output(store: Store) -> str:
    """Return the end of a session's console output; empty without one."""
    try:
        data = store.get(CONSOLE_LOG, 0, _MAX_CONSOLE_BYTES)
    except StorageError:
        return ""
    return data[-_MAX_CONSOLE_SHOWN:].decode(errors="replace")


def system_curves(store: Store, columns: RunColumns) -> dict[str, Points]:
    """Return the use of the machine in percent by name, over the steps of a run."""
    samples = _samples(store)
    times = np.array([_number(each.get("Time")) for each in samples])
    steps = columns.steps_at(times)
    known = ~np.isnan(steps)
    curves = {}
    for name, values in _named(samples).items():
        numbers = np.array(values)[known]
        is_bad = np.zeros(len(numbers), np.bool_)
        if len(numbers) and not np.isnan(numbers).all():
            curves[name] = Points(steps[known].astype(np.int64), numbers, numbers, is_bad)
    return curves


def _named(samples: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the series of CPU, memory, disk and GPUs."""
    found = {
        name: [_number(each.get(member)) for each in samples]
        for name, member in (
            ("CPU", "CpuPercent"),
            ("memory", "MemoryPercent"),
            ("disk", "DiskPercent"),
        )
    }
    num_gpus = max((len(_gpus(each)) for each in samples), default=0)
    for at in range(num_gpus):
        for name, member in (("", "Percent"), (" memory", "MemoryPercent")):
            of_gpu = [_gpus(each)[at : at + 1] for each in samples]
            found[f"GPU {at}{name}"] = [
                _number(gpu[0].get(member)) if gpu else math.nan for gpu in of_gpu
            ]
    return found


def _gpus(sample: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    gpus = sample.get("Gpus")
    given = gpus if isinstance(gpus, list) else []
    return [each for each in given[:_MAX_GPUS] if isinstance(each, dict)]


def _samples(store: Store) -> list[Mapping[str, Any]]:
    try:
        data = store.get(SYSTEM_METRICS_FILE, 0, _MAX_METRICS_BYTES)
    except StorageError:
        return []
    found: list[Mapping[str, Any]] = []
    for line in data.splitlines():
        with suppress(FormatError):  # a line that is being written
            sample = load_json(
                line, file=SYSTEM_METRICS_FILE, error=FormatError, max_bytes=len(line)
            )
            if isinstance(sample, dict):
                found.append(sample)
    return found


def _number(value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan
