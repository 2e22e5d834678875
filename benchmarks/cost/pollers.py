"""Lambda's pollers of one queue, simulated: which files come together in one call."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from benchmarks.cost.deployment import Evaluator
from benchmarks.cost.workload import POLLERS

__all__ = ["Call", "calls_of"]

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call of a function.

    Attributes:
        at: When it begins, seconds.
        messages: What it brings.
        process: Number of the function's process that takes it, the first free one.
    """

    at: float
    messages: list[T]
    process: int


def calls_of(
    evaluator: Evaluator,
    messages: Sequence[tuple[float, T]],
    seconds: Callable[[Sequence[T]], float],
    generator: random.Random,
) -> list[Call[T]]:
    """Return the calls that messages lead to, in the order of their beginnings.

    A message goes to any of the pollers that wait for one, or collect a batch; if none does, it
    waits in the queue.

    Args:
        evaluator: Batch size and window.
        messages: When each comes, in seconds, in order.
        seconds: How long a call with some messages takes.
        generator: Chooses among pollers.
    """
    queue = _Queue(evaluator, seconds, generator)
    for at, message in messages:
        queue.pass_time(at)
        queue.take(at, message)
    queue.pass_time(float("inf"))
    return sorted(queue.calls, key=lambda call: call.at)


@dataclass
class _Poller(Generic[T]):
    """One poller: idle, collecting a batch, or waiting for the function (`is_busy`)."""

    batch: list[T] = field(default_factory=list)
    number: int = 0
    is_busy: bool = False


class _Queue(Generic[T]):
    """The state of a queue and its pollers at some time."""

    def __init__(
        self,
        evaluator: Evaluator,
        seconds: Callable[[Sequence[T]], float],
        generator: random.Random,
    ) -> None:
        self.calls: list[Call[T]] = []
        self._evaluator = evaluator
        self._seconds = seconds
        self._generator = generator
        self._pollers: list[_Poller[T]] = [_Poller() for _ in range(POLLERS)]
        self._waiting: list[T] = []
        self._busy_until = [0.0] * POLLERS
        self._due: list[tuple[float, int, _Poller[T], int | None]] = []
        self._numbers = count(1)

    def take(self, at: float, message: T) -> None:
        """Give a message to a poller, or keep it."""
        free = [poller for poller in self._pollers if not poller.is_busy]
        if not free:
            self._waiting.append(message)
            return
        self._add(at, self._generator.choice(free), [message])

    def pass_time(self, until: float) -> None:
        """Close the windows and end the calls that are due."""
        while self._due and self._due[0][0] <= until:
            at, _, poller, window = heapq.heappop(self._due)
            if window is None:
                poller.is_busy = False
                size = self._evaluator.batch_size
                batch, self._waiting = self._waiting[:size], self._waiting[size:]
                self._add(at, poller, batch)
            elif window == poller.number and not poller.is_busy:
                self._call(at, poller)

    def _add(self, at: float, poller: _Poller[T], messages: list[T]) -> None:
        if not messages:
            return
        if not poller.batch:
            poller.number = next(self._numbers)
            closes = at + self._evaluator.window_s
            heapq.heappush(self._due, (closes, next(self._numbers), poller, poller.number))
        poller.batch += messages
        if len(poller.batch) >= self._evaluator.batch_size or not self._evaluator.window_s:
            self._call(at, poller)

    def _call(self, at: float, poller: _Poller[T]) -> None:
        process = next(n for n, until in enumerate(self._busy_until) if until <= at)
        ends = at + self._seconds(poller.batch)
        self._busy_until[process] = ends
        self.calls.append(Call(at, poller.batch, process))
        poller.batch, poller.is_busy, poller.number = [], True, 0
        heapq.heappush(self._due, (ends, next(self._numbers), poller, None))
