"""Troubles of the hook stay in it: they are counted and logged once.

A part that fails several times in a row is switched off. A tensor that cannot be captured costs
nothing but itself, however often it fails.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from hook_layer.errors import HookConfigurationError, TrainingStoppedError

__all__ = ["FailureLog", "Guarded", "Stopwatch", "guarded"]

logger = logging.getLogger("stepwatch")

_MAX_FAILURES_IN_A_ROW: Final = 3
_MAX_REASONS: Final = 100
"""Mistakes, and reasons why tensors fail, that are logged."""
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Self = TypeVar("_Self", bound="Guarded")


class FailureLog:
    """What failed in a hook, and which of its parts are switched off.

    Attributes:
        errors: Number of errors by part; `tensors` counts those of single tensors.
        in_a_row: Failures since the last success, by part and what of it failed.
        off: Parts that are switched off.
    """

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.in_a_row: Counter[tuple[str, str]] = Counter()
        self.off: set[str] = set()
        self._tensors: dict[str, list[str]] = {}  # names, by the reason
        self._mistakes: set[str] = set()

    def failed(self, part: str, error: BaseException, *, where: str = "") -> None:
        """Count an error of a part; the first is logged with its stack, and the last as such.

        Args:
            part: The part.
            error: The error.
            where: What of the part failed; failures in a row are counted for each.
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
        """Note that a part, or what `where` names of it, worked."""
        if self.in_a_row:
            self.in_a_row.pop((part, where), None)

    def mistaken(self, error: HookConfigurationError) -> None:
        """Count a mistake in the configuration that was made while training runs; logged once."""
        message = str(error)
        if message not in self._mistakes and len(self._mistakes) < _MAX_REASONS:
            self._mistakes.add(message)
            self.errors["configuration"] += 1
            logger.error("this call has no effect; training continues: %s", message)

    def tensor_failed(self, name: str, error: BaseException) -> None:
        """Count a tensor that could not be captured; two are logged for each reason."""
        self.errors["tensors"] += 1
        reason = str(error)
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
    """The time spent in guarded methods; in one that another calls it is not counted twice.

    Attributes:
        is_running: Whether it counts just now.
        seconds: The time so far.
    """

    __slots__ = ("is_running", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_running = False

    def start(self) -> float:
        """Begin to count, and return what `stop` must be given."""
        if self.is_running:
            return 0.0
        self.is_running = True
        return time.perf_counter()

    def stop(self, started: float) -> None:
        """Count the time since `start` returned `started`."""
        if started:
            self.seconds += time.perf_counter() - started
            self.is_running = False


class Guarded(Protocol):
    """What `guarded` needs of the object that it guards."""

    failures: FailureLog
    stopwatch: Stopwatch

    @property
    def is_active(self) -> bool:
        """Whether anything is done at all."""
        ...


def guarded(
    part: str,
) -> Callable[[Callable[Concatenate[_Self, _P], _R]], Callable[Concatenate[_Self, _P], _R | None]]:
    """Keep the errors of a method away from training; the method must be harmless to leave out.

    Only a request to stop and mistakes in the configuration get through.

    Args:
        part: The part of the hook that several errors in a row switch off.
    """

    def decorate(
        method: Callable[Concatenate[_Self, _P], _R],
    ) -> Callable[Concatenate[_Self, _P], _R | None]:
        def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
            failures, stopwatch = self.failures, self.stopwatch
            if part in failures.off or not self.is_active:
                return None
            # Most guarded methods are called by another one: that must cost next to nothing.
            started = 0.0 if stopwatch.is_running else stopwatch.start()
            try:
                result = method(self, *args, **kwargs)
            except (TrainingStoppedError, HookConfigurationError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, training continues
                failures.failed(part, error, where=method.__name__)
                return None
            finally:
                if started:
                    stopwatch.stop(started)
            if failures.in_a_row:
                failures.succeeded(part, where=method.__name__)
            return result

        update_wrapper(call, method)
        return call

    return decorate
