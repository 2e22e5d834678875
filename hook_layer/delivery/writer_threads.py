"""The writer's threads, and their task queue.

**One thread stores, in order.** Only this thread uses the store. While it delivers steps that wait
on local disk (`hook_layer.delivery.step_delivery`), or while the store does not respond, a second
thread takes over the queue. It writes steps to local disk before they fill the memory. It ends when
no step waits there.

**Small steps are batched.** By default, steps are stored at once, but after a small one the thread
sleeps briefly. If steps take milliseconds, waking it for each would slow down training more than
the step itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from hook_layer.delivery.step_delivery import StepDelivery

__all__ = ["Task", "WriterThreads"]

logger = logging.getLogger("stepwatch")

_STUCK_S: Final = 5.0
"""Duration of one task at the store after which other steps wait on local disk instead."""
_GRACE_S: Final = 0.5
_SPOOLING_S: Final = 5.0
_CHECK_S: Final = 1.0
_GATHER_S: Final = 0.05
_SMALL_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Task:
    """A task of the writer.

    Attributes:
        at_store: Does the task; called by the thread that stores.
        elsewhere: Does the part without the store; called by the other thread.
        nbytes: Memory that it holds.
    """

    at_store: Callable[[], None]
    elsewhere: Callable[[], None]
    nbytes: int = 0


class WriterThreads:
    """Runs tasks in order.

    Attributes:
        changed: Lock for `enqueue` and the properties; notified of changes that concern the threads
            and callers that wait for memory.
        idle: Shares the lock of `changed`; notified when no task is due.
        held_bytes: Memory held by unfinished tasks.
        is_closing: Whether no further tasks are accepted.
    """

    def __init__(
        self, delivery: StepDelivery, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.idle = threading.Condition(lock)
        self.held_bytes = 0
        self._delivery = delivery
        self._clock = clock
        self._tasks: deque[Task] = deque()
        self._num_busy = 0
        self._at_store_since: float | None = None
        self._at_store_bytes = 0
        self.is_closing = False
        self._deadline: float | None = None
        self._had_last_try = self._has_hurried = False
        self._gathers = False
        self._hurry = threading.Event()
        self._storing: threading.Thread | None = None
        self._spooling: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no task is due; steps may still wait for an unavailable store."""
        delivery = self._delivery
        is_waiting = not delivery.has_backlog or delivery.wait_s() > 0
        return not self._tasks and not self._num_busy and is_waiting

    @property
    def stuck_bytes(self) -> int:
        """Memory of a task that the store does not finish; 0 without such a task."""
        return self._at_store_bytes if self._is_stuck() else 0

    def are_alive(self) -> bool:
        """Start a thread for spooling if needed; return whether tasks will run."""
        self._start_spooling_if_needed()
        return self._storing is not None and self._storing.is_alive()

    def enqueue(self, task: Task) -> None:
        """Add a task."""
        self._tasks.append(task)
        self.held_bytes += task.nbytes
        if self._storing is None:
            self._storing = _started(self._store, "stepwatch-writer")
        self._start_spooling_if_needed()
        if self.held_bytes > _SMALL_BYTES:
            self._hurry.set()
        self.changed.notify_all()

    def hurry(self) -> None:
        """Store small steps now, because a caller waits for them."""
        self._hurry.set()

    def close(self, timeout_s: float | None) -> tuple[bool, int]:
        """Finish all tasks, and end the threads.

        Args:
            timeout_s: Maximum duration; None: no limit.

        Returns:
            Whether all tasks were done in time, and the number of undone tasks that hold memory.
        """
        with self.changed:
            self.is_closing = True
            self._hurry.set()
            if timeout_s is not None:
                self._deadline = time.monotonic() + timeout_s
            self.changed.notify_all()
        storing = self._storing
        if storing is None or not storing.is_alive():
            storing = None
            self._store()  # no thread could be started, or a fork removed it
        else:
            storing.join(None if timeout_s is None else timeout_s + _GRACE_S)
        in_time = not (storing is not None and storing.is_alive()) and not self._is_late()
        with self.changed:
            if self._tasks and self._spooling is None:
                self._spooling = _started(self._spool, "stepwatch-spooler")
            self.changed.wait_for(lambda: self._spooling is None, _SPOOLING_S)
            left = sum(task.nbytes > 0 for task in self._tasks)
            self._tasks.clear()
            self.idle.notify_all()
        return in_time and not left, left

    # The thread that stores ----------------------------------------------------------------------

    def _store(self) -> None:
        while (action := self._next_at_store()) is not None:
            self._do(action)
            if self._gathers and not self._tasks and not self.is_closing:
                self._hurry.wait(_GATHER_S)
                self._hurry.clear()

    def _next_at_store(self) -> Callable[[], None] | None:
        """Wait for the next action at the store; None: the thread must end."""
        with self.changed:
            self._at_store_since = None
            while not self._is_over():
                action = self._choose()
                if action is not None:
                    self._num_busy += 1
                    self._at_store_since = self._clock()
                    return action
                self.changed.wait(self._pause_s())
            return None

    def _choose(self) -> Callable[[], None] | None:
        """Return the next action at the store; None if none is due."""
        self._gathers = False
        self._start_spooling_if_needed()
        if self._tasks and self._spooling is None:
            return self._taken(at_store=True)
        if self._is_ending() and self._delivery.is_hopeless:
            self._had_last_try = True
            return self._delivery.advance
        if self._is_ending() and not self._has_hurried:
            self._has_hurried = True  # the store may be back, and a pause can take a minute
            return self._delivery.advance
        if self._delivery.has_backlog or self._is_ending():
            return self._delivery.advance if self._delivery.wait_s() == 0 else None
        return None

    def _is_ending(self) -> bool:
        """Return whether no further tasks will arrive."""
        return self.is_closing and not self._tasks and self._spooling is None

    def _is_over(self) -> bool:
        if self._is_late():
            return True
        delivery = self._delivery
        has_given_up = self._had_last_try and delivery.is_hopeless
        return self._is_ending() and (delivery.is_done or has_given_up)

    def _pause_s(self) -> float | None:
        """Return how long to wait for changes, until the end at most."""
        is_trying = self._delivery.has_backlog or self._is_ending()
        wait_s = self._delivery.wait_s() if is_trying else None
        if self._deadline is None:
            return wait_s
        left_s = max(self._deadline - time.monotonic(), 0.0)
        return left_s if wait_s is None else min(wait_s, left_s)

    # The thread that does not touch the store ----------------------------------------------------

    def _start_spooling_if_needed(self) -> None:
        if self._spooling is None and self._tasks and self._must_spool():
            self._spooling = _started(self._spool, "stepwatch-spooler")

    def _spool(self) -> None:
        while (action := self._next_to_spool()) is not None:
            self._do(action)

    def _next_to_spool(self) -> Callable[[], None] | None:
        with self.changed:
            while self._must_spool():
                if self._tasks and self._may_spool(self._tasks[0]):
                    self._num_busy += 1
                    return self._taken(at_store=False)
                if self.is_closing and not self._tasks:
                    break
                self.changed.wait(_CHECK_S)
            self._spooling = None
            self.changed.notify_all()
            return None

    def _must_spool(self) -> bool:
        """Return whether the storing thread is too busy to take a task."""
        return self._delivery.has_backlog or self._is_stuck() or self._is_late()

    def _is_stuck(self) -> bool:
        since = self._at_store_since
        return since is not None and self._clock() - since > _STUCK_S

    def _may_spool(self, task: Task) -> bool:
        """Return whether to spool a task; without room, only if waiting for room does not help."""
        delivery = self._delivery
        is_away = delivery.health.breaker.has_opened or self.is_closing
        return is_away or delivery.backlog.has_room(task.nbytes)

    # Both threads --------------------------------------------------------------------------------

    def _taken(self, *, at_store: bool) -> Callable[[], None]:
        task = self._tasks.popleft()
        if at_store:
            self._at_store_bytes = task.nbytes
            self._gathers = task.nbytes <= _SMALL_BYTES
        return partial(self._finish, task, at_store=at_store)

    def _finish(self, task: Task, *, at_store: bool) -> None:
        try:
            (task.at_store if at_store else task.elsewhere)()
        finally:
            with self.changed:
                self.held_bytes -= task.nbytes
                if at_store:
                    self._at_store_bytes = 0

    def _do(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # these threads must never end
            logger.exception("the writer failed; training continues")
        finally:
            with self.changed:
                self._num_busy -= 1
                self.changed.notify_all()
                if self.is_idle:  # wake waiting callers only when all tasks are done
                    self.idle.notify_all()

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline


def _started(work: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a thread; return None if the interpreter no longer starts threads."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
