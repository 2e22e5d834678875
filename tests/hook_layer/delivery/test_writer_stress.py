"""Whatever the store does, every step is stored, waits, or is counted as lost, in order."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from hook_layer.configuration.hook_options import HookOptions
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.writer import StepWriter
from hook_layer.storage.base import Buffers, StorageError
from hook_layer.storage.memory import MemoryStore
from tests.hook_layer.doubles import CountedSnapshot, Switchable, make_record

NUM_STEPS = 60
TIMEOUT_S = 30.0


class Moody(Switchable):
    """Works, fails or hangs for a while, by turns."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._mood, self._left = "fine", 0
        self.is_calm = False
        self.threads: set[int] = set()

    def put(self, key: str, data: Buffers) -> None:
        self.threads.add(threading.get_ident())
        if self._left == 0:
            self._mood = self._random.choice(["fine", "fine", "failing", "hanging"])
            self._left = self._random.randint(1, 12)
        self._left -= 1
        if not self.is_calm and self._mood == "hanging":
            time.sleep(0.01)
        stores = self.is_calm or self._mood != "failing" or self._random.random() < 0.3
        if stores:  # the answer may get lost
            self.order.append(key)
            MemoryStore.put(self, key, data)
        if not self.is_calm and self._mood == "failing":
            raise StorageError("503")


@pytest.mark.parametrize("spool_bytes", [0, 30_000, 1 << 30])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_unnoticed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seed: int,
    spool_bytes: int,
) -> None:
    monkeypatch.setattr("hook_layer.delivery.writer_threads._STUCK_S", 0.004)
    monkeypatch.setattr(
        "hook_layer.delivery.circuit_breaker.CircuitBreaker.__init__.__kwdefaults__",
        {
            "max_failures": 3,
            "first_pause_s": 0.002,
            "longest_pause_s": 0.004,
            "clock": time.monotonic,
        },
    )
    CountedSnapshot.released = 0
    store = Moody(seed)
    options = HookOptions(
        queue_bytes=30_000, spool_bytes=spool_bytes, spool_dir=str(tmp_path), max_wait_s=TIMEOUT_S
    )
    writer = StepWriter(store, RunIdentity("RUN", "worker_0"), options=options)
    writer.put_file("job.json", b"{}")
    for step in range(NUM_STEPS):
        writer.submit(make_record(step))
        if step % 7 == 0:
            time.sleep(0.002)
    writer.put_file("collections.json", b"c")
    writer.put_file("end", lambda: str(writer.submitted_sequence).encode(), is_last=True)
    store.is_calm = True
    assert writer.close(TIMEOUT_S)
    counters = writer.counters
    assert counters.steps_in_spool == 0
    assert counters.steps_written + counters.steps_lost == NUM_STEPS
    assert CountedSnapshot.released == NUM_STEPS
    stored = {index.sequence or 0: index.skipped or 0 for index in store.indexes()}
    assert len(stored) >= counters.steps_written
    counted = set(stored)
    for number, skipped in stored.items():
        counted |= set(range(number - skipped, number))
    assert counted == set(range(1, max(counted, default=0) + 1))
    if spool_bytes == 1 << 30:
        assert set(stored) == set(range(1, NUM_STEPS + 1))
        assert counters.steps_lost == 0
    if "takes others; the step stays" not in caplog.text:
        first_times = list(dict.fromkeys(key for key in store.order if key.startswith("index")))
        assert first_times == sorted(first_times)
    assert (store.get("job.json"), store.get("end")) == (b"{}", b"60")
    assert store.order[-1] == "end"
    assert len(store.threads) == 1
    assert list(tmp_path.iterdir()) == []
