"""State that all parts of a hook share: errors, run time, and whether it is active."""

from __future__ import annotations

from hook_layer.configuration.job import hook_enabled
from hook_layer.core.events import Events, HookCloses
from hook_layer.guard import FailureLog, Stopwatch
from hook_layer.process.this_process import this_process

__all__ = ["HookState", "Part"]


class HookState:
    """Errors, run time and lifecycle of a hook.

    Attributes:
        failures: Errors by part of the hook, and disabled parts.
        events: The events of the training loop, and their subscribers.
        stopwatch: Time that the hook took from the training script.
        is_enabled: False if `USE_SMDEBUG` disables hooks.
        is_closed: Whether the hook was closed.
        pid: The process that created the hook.
    """

    __slots__ = ("events", "failures", "is_closed", "is_enabled", "pid", "stopwatch")

    def __init__(self) -> None:
        self.failures = FailureLog()
        self.events = Events(self.failures)
        self.stopwatch = Stopwatch()
        self.is_enabled = hook_enabled()
        self.is_closed = False
        self.pid = this_process.pid

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the process that created the hook."""
        return this_process.pid != self.pid

    def warn_once(self, message: str) -> None:
        """Log a warning once, unless hooks are disabled."""
        if self.is_enabled:
            self.failures.warn_once(message)

    def close(self) -> None:
        """Mark the hook as closed, and release objects of the framework."""
        self.is_closed = True
        self.events.emit(HookCloses())


class Part:
    """A part of a hook whose methods can be guarded, see `hook_layer.guard`."""

    def __init__(self, state: HookState) -> None:
        self.state = state
        self.failures = state.failures
        self.events = state.events
        self.stopwatch = state.stopwatch

    @property
    def is_active(self) -> bool:
        """False after `close`, in forked children, and if `USE_SMDEBUG` disables hooks."""
        state = self.state
        return state.is_enabled and not state.is_closed and this_process.pid == state.pid
