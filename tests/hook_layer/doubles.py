"""Steps to store, a store that fails or hangs on request, and a clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from hook_layer.capture.captured_step import ArraySnapshot, CapturedTensor, NumpyBackend, StepRecord
from hook_layer.format.index import IndexFile, parse_index
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import Buffers, StorageError
from hook_layer.storage.memory import MemoryStore

TIMEOUT_S = 20.0


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Switchable(MemoryStore):
    """Fails while `fails` says so, and waits at a gate: from the beginning if it `hangs`."""

    def __init__(
        self, fails: Callable[[str], bool] = lambda _: False, *, hangs: bool = False
    ) -> None:
        super().__init__()
        self.fails = fails
        self.gate = threading.Event()
        if not hangs:
            self.gate.set()
        self.called = threading.Event()
        self.order: list[str] = []
        self.attempts = 0
        self.error: type[StorageError] = StorageError

    def put(self, key: str, data: Buffers) -> None:
        self.called.set()
        assert self.gate.wait(TIMEOUT_S)
        self.attempts += 1
        if self.fails(key):
            raise self.error(f"no space for {key}")
        self.order.append(key)
        super().put(key, data)

    def indexes(self) -> list[IndexFile]:
        return [parse_index(self.get(key), file=key) for key in self.list("index/")]

    def numbers(self) -> list[tuple[int | None, int | None]]:
        """Return sequence and skipped of every index file."""
        return [(index.sequence, index.skipped) for index in self.indexes()]


class CountedSnapshot(ArraySnapshot):
    released = 0

    def release(self) -> None:
        CountedSnapshot.released += 1


def make_record(step: int, num_bytes: int = 4000) -> StepRecord:
    values = np.arange(num_bytes // 4, dtype="f4") + step
    statistics = NumpyBackend().statistics([values], [None])
    record = StepRecord(step, ModeKeys.TRAIN, step, wall_time=1.5)
    snapshot = CountedSnapshot(values)
    tensor = CapturedTensor("float32", values.shape, raw=snapshot, statistics=statistics)
    record.add({"w": tensor})
    return record
