"""Small steps that come quickly are stored together, and nobody waits for that."""

from __future__ import annotations

import threading
import time

import pytest

from hook_layer.configuration.hook_options import HookOptions
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.writer import StepWriter
from hook_layer.storage.memory import MemoryStore
from tests.hook_layer.doubles import TIMEOUT_S, make_record

NEVER_S = 600.0


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> StepWriter:
    """A writer that has stored a small step, and gathers others without end."""
    monkeypatch.setattr("hook_layer.delivery.writer_threads._GATHER_S", NEVER_S)
    gathering = threading.Event()
    wait = threading.Event.wait

    def announced(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout == NEVER_S:
            gathering.set()
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", announced)
    writer = StepWriter(
        MemoryStore(), RunIdentity("RUN", "worker_0"), options=HookOptions(queue_bytes=1 << 20)
    )
    writer.submit(make_record(0))
    assert wait(gathering, TIMEOUT_S)
    return writer


def test_steps_wait_while_others_may_come_and_flush_does_not(writer: StepWriter) -> None:
    assert writer.counters.steps_written == 1, "the first one is stored at once"
    for step in (1, 2):
        writer.submit(make_record(step))
    assert writer.counters.steps_written == 1
    assert writer.wait_until_idle(TIMEOUT_S)
    assert writer.counters.steps_written == 3
    assert writer.close(TIMEOUT_S)


def test_the_end_does_not_wait(writer: StepWriter) -> None:
    writer.submit(make_record(1))
    assert writer.close(TIMEOUT_S)
    assert writer.counters.steps_written == 2


def test_training_does_not_wait_for_room_that_gathered_steps_take(writer: StepWriter) -> None:
    started = time.monotonic()
    for step in range(1, 600):  # 4 kB each
        writer.submit(make_record(step))
    assert time.monotonic() - started < TIMEOUT_S
    assert writer.close(TIMEOUT_S)
    assert (writer.counters.steps_written, writer.counters.steps_dropped) == (600, 0)


def test_much_data_is_not_left_lying(writer: StepWriter) -> None:
    writer.submit(make_record(1, num_bytes=2 << 20))
    deadline = time.monotonic() + TIMEOUT_S
    while writer.counters.steps_written < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert writer.counters.steps_written == 2
    assert writer.close(TIMEOUT_S)
