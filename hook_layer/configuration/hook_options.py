"""Hook options that the original client does not have."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from typing_extensions import TypedDict

from hook_layer.capture.byte_budget import DEFAULT_RUN_BYTES, DEFAULT_STEP_BYTES
from hook_layer.configuration.json_values import as_choice, refuse
from hook_layer.run.stop_signal import DEFAULT_STOP_POLL_S

__all__ = [
    "VALUE_LIMITS",
    "HookOptions",
    "OnFull",
    "OnStop",
    "OptionArguments",
]

VALUE_LIMITS: Final[Mapping[str, str]] = MappingProxyType(
    {"max_step_bytes": str(DEFAULT_STEP_BYTES), "max_run_bytes": str(DEFAULT_RUN_BYTES)}
)
"""Limits of a hook in scripts without one, as parameters of a configuration file."""
_OPTIONAL_TIMES: Final = ("close_timeout_s", "termination_timeout_s")
_TIMES: Final = (*_OPTIONAL_TIMES, "stop_poll_s", "max_wait_s")

OnFull = Literal["wait", "drop"]
"""What happens to a step without free memory: training waits, or the step is dropped."""

OnStop = Literal["raise", "flag"]
"""What a stop request does: raise `TrainingStoppedError`, or only set `hook.should_stop`."""


@dataclass(frozen=True)
class HookOptions:
    """Options beyond those of the original client.

    Attributes:
        statistics: Whether the index contains statistics of every captured tensor.
        stop: What a stop request does.
        stop_poll_s: Interval of checks for a stop request, seconds.
        on_full: Whether training waits or a step is dropped when the writer's memory is full.
        queue_bytes: Maximum captured data that waits in memory, bytes. A single step may be larger,
            and one that hangs at the store is not counted.
        close_timeout_s: How long `close` waits for unwritten data, seconds; None: forever.
        max_wait_s: With `on_full="wait"`, how long training waits for memory while nothing is
            stored, seconds; after that, steps are dropped.
        spool_bytes: Maximum data that waits on local disk while the store is unavailable, bytes; 0:
            none.
        spool_dir: Folder for this data; None: a temporary one.
        max_step_bytes: Maximum bytes of values per saved step and worker. Beyond it, only the first
            rows of large values are stored; statistics always cover whole tensors. None: no limit;
            16 MiB in scripts without a hook.
        max_run_bytes: Maximum bytes of values per process of the run. None: no limit; 1 GiB in
            scripts without a hook.
        termination_timeout_s: Time to store captured data after SIGTERM or SIGHUP, seconds; None:
            the hook does not handle these signals.
    """

    statistics: bool = True
    stop: OnStop = "raise"
    stop_poll_s: float = DEFAULT_STOP_POLL_S
    on_full: OnFull = "wait"
    queue_bytes: int = 512 << 20
    close_timeout_s: float | None = 600.0
    max_wait_s: float = 30.0
    spool_bytes: int = 2 << 30
    spool_dir: str | os.PathLike[str] | None = None
    max_step_bytes: int | None = None
    max_run_bytes: int | None = None
    termination_timeout_s: float | None = 20.0

    @property
    def spool_folder(self) -> str | None:
        """`spool_dir` as text."""
        return None if self.spool_dir is None else os.fspath(self.spool_dir)

    def __post_init__(self) -> None:
        as_choice("stop", self.stop, ("raise", "flag"))
        as_choice("on_full", self.on_full, ("wait", "drop"))
        if not isinstance(self.statistics, bool):
            refuse("statistics", self.statistics, "must be True or False")
        if not isinstance(self.spool_dir, (str, os.PathLike, type(None))):
            refuse("spool_dir", self.spool_dir, "must be a path, or None")
        for name in _TIMES:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_TIMES:
                continue
            if not _is_number(value) or not 0 < value <= threading.TIMEOUT_MAX:
                refuse(name, value, f"must be a number above 0, up to {threading.TIMEOUT_MAX:g}")
        if not _is_number(self.queue_bytes) or not 0 < self.queue_bytes < math.inf:
            refuse("queue_bytes", self.queue_bytes, "must be a number above 0")
        if not _is_number(self.spool_bytes) or not 0 <= self.spool_bytes < math.inf:
            refuse("spool_bytes", self.spool_bytes, "must be a number of 0 or more")
        for name in ("max_step_bytes", "max_run_bytes"):
            limit = getattr(self, name)
            if limit is not None and (not _is_number(limit) or not limit >= 1):
                refuse(name, limit, "must be a number of 1 or more, or None")


class OptionArguments(TypedDict, total=False):
    """The fields of `HookOptions` as keyword arguments of every hook."""

    statistics: bool
    stop: OnStop
    stop_poll_s: float
    on_full: OnFull
    queue_bytes: int
    close_timeout_s: float | None
    max_wait_s: float
    spool_bytes: int
    spool_dir: str | os.PathLike[str] | None
    max_step_bytes: int | None
    max_run_bytes: int | None
    termination_timeout_s: float | None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
