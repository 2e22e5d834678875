"""Errors in the hook never reach the training script: they are counted and logged once.

A part that fails several times in a row is disabled. A tensor that cannot be captured affects only
itself.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from hook_layer.errors import HookConfigurationError, TrainingStoppedError
from hook_layer.process.this_process import this_process

__all__ = ["FailureLog", "Guarded", "Stopwatch", "guarded"]

logger = logging.getLogger("stepwatch")

_MAX_FAILURES_IN_A_ROW: Final = 3
_MAX_REASONS: Final = 100
"""Maximum number of logged mistakes, and of logged reasons why tensors fail."""
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Self = TypeVar("_Self", bound="Guarded")


class FailureLog:
    """Counts errors in a hook, and disables parts that keep failing.

    Attributes:
        errors: Number of errors by part; `tensors` counts those of single tensors.
        in_a_row: Consecutive failures, by part and location.
        off: Disabled parts.
    """

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.in_a_row: Counter[tuple[str, str]] = Counter()
        self.off: set[str] = set()
        self._tensors: dict[str, list[str]] = {}  # names, by the reason
        self._mistakes: set[str] = set()
        self._warnings: set[str] = set()

    def warn_once(self, message: str, *arguments: object) -> None:
        """Log a warning once, whatever its arguments."""
        if message not in self._warnings:
            self._warnings.add(message)
            logger.warning(message, *arguments)

    def failed(self, part: str, error: BaseException, *, where: str = "") -> None:
        """Count an error of a part; log the first with its stack, and the one that disables it.

        Args:
            part: The part.
            error: The error.
            where: Location within the part; consecutive failures are counted per location.
        """
        self.errors[part] += 1
        self.in_a_row[part, where] += 1
        if self.errors[part] == 1:
            logger.error("capturing %s failed; training continues", part, exc_info=error)
        if self.in_a_row[part, where] >= _MAX_FAILURES_IN_A_ROW and part not in self.off:
            self.off.add(part)
            logger.error(
                "capturing %s failed %d times in a row and is switched off; training continues: %s",
                part,
                _MAX_FAILURES_IN_A_ROW,
                error,
            )

    def succeeded(self, part: str, *, where: str = "") -> None:
        """Record a success of a part, or of a location in it."""
        if self.in_a_row:
            self.in_a_row.pop((part, where), None)

    @property
    def not_captured(self) -> dict[str, str]:
        """Why tensors were not captured, by name; two tensors per reason."""
        return {name: reason for reason, names in self._tensors.items() for name in names}

    def mistaken(self, error: HookConfigurationError) -> None:
        """Count a configuration mistake that was made during training; log it once."""
        message = str(error)
        if message not in self._mistakes and len(self._mistakes) < _MAX_REASONS:
            self._mistakes.add(message)
            self.errors["configuration"] += 1
            logger.error("this call has no effect; training continues: %s", message)

    def tensor_failed(self, name: str, error: BaseException) -> None:
        """Count a tensor that could not be captured; log two per reason."""
        self.errors["tensors"] += 1
        self.tensor_skipped(name, str(error))

    def tensor_skipped(self, name: str, reason: str) -> None:
        """Record why a tensor is not captured, which need not be an error; log two per reason."""
        if reason not in self._tensors and len(self._tensors) >= _MAX_REASONS:
            return
        known = self._tensors.setdefault(reason, [])
        if name in known or len(known) > 1:
            return
        known.append(name)
        if len(known) == 1:
            logger.warning("%.200r cannot be saved and is skipped: %s", name, reason)
        else:
            logger.warning("%.200r and others cannot be saved and are skipped: %s", name, reason)


class Stopwatch:
    """Time in guarded methods; nested calls are not counted twice.

    Attributes:
        is_running: Whether a guarded method is running.
        seconds: The total time.
    """

    __slots__ = ("is_running", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_running = False


class Lifecycle(Protocol):
    """Whether guarded methods run: not in a disabled or closed hook, nor in a forked process."""

    is_enabled: bool
    is_closed: bool
    pid: int


class Guarded(Protocol):
    """Attributes that `guarded` requires of the guarded object."""

    failures: FailureLog
    stopwatch: Stopwatch

    @property
    def state(self) -> Lifecycle:
        """Whether guarded methods run."""
        ...


def guarded(
    part: str, *, after_close: bool = False
) -> Callable[[Callable[Concatenate[_Self, _P], _R]], Callable[Concatenate[_Self, _P], _R | None]]:
    """Keep the errors of a method away from training; skipping the method must be harmless.

    Only stop requests and configuration mistakes are raised.

    Args:
        part: The part of the hook to disable after several consecutive errors.
        after_close: Whether the method also runs in a closed hook.
    """

    def decorate(
        method: Callable[Concatenate[_Self, _P], _R],
    ) -> Callable[Concatenate[_Self, _P], _R | None]:
        def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
            failures, stopwatch, state = self.failures, self.stopwatch, self.state
            # As `is_active`, but without a call: this runs several times a step.
            is_open = after_close or not state.is_closed
            is_active = state.is_enabled and is_open and this_process.pid == state.pid
            if part in failures.off or not is_active:
                return None
            started = 0.0
            if not stopwatch.is_running:
                stopwatch.is_running, started = True, time.perf_counter()
            try:
                result = method(self, *args, **kwargs)
            except (TrainingStoppedError, HookConfigurationError):
                raise
            except Exception as error:  # noqa: BLE001 - training continues after any error
                failures.failed(part, error, where=method.__name__)
                return None
            finally:
                if started:
                    stopwatch.seconds += time.perf_counter() - started
                    stopwatch.is_running = False
            if failures.in_a_row:
                failures.succeeded(part, where=method.__name__)
            return result

        update_wrapper(call, method)
        return call

    return decorate
