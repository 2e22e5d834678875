"""Runs tasks of `stepwatch run` on a thread of its own, every few seconds and at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from typing_extensions import Self

__all__ = ["PeriodicTasks"]

logger = logging.getLogger("stepwatch")

_END_S: Final = 10.0
"""Seconds that the tasks have at the end: a store may hang."""


class PeriodicTasks:
    """Runs tasks while it is entered; each failing task is logged once and continues.

    Args:
        tasks: The tasks.
        interval_s: Interval, seconds.
    """

    def __init__(self, tasks: Sequence[Callable[[], None]], interval_s: float = 10.0) -> None:
        self._tasks = tasks
        self._interval_s = interval_s
        self._has_ended = threading.Event()
        self._failed: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="stepwatch-tasks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._has_ended.wait(self._interval_s)
            for number, task in enumerate(self._tasks):
                self._try(number, task)

    def _try(self, number: int, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001 - the command continues
            if number not in self._failed:
                self._failed.add(number)
                logger.warning("a file of the session is not complete: %s", error)
