"""Statistics on their way from devices, which several threads add to, send and read."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hook_layer.pytorch import device_kernels, device_statistics
from hook_layer.pytorch.device_statistics import DeviceBatches

MEAN = 5


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(*actions: Callable[[], Any]) -> list[Any]:
    """Run actions at the same time, and return what they return, or raise."""
    barrier = threading.Barrier(len(actions))
    results: list[Any] = []

    def run(action: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            results.append(action())
        except Exception as error:  # noqa: BLE001 - for the test to see
            results.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.usefixtures("hasty_threads")
def test_one_thread_adds_while_another_sends() -> None:
    batches, ones = DeviceBatches(), torch.ones(3)
    added: list[Any] = []

    def add() -> None:
        for _ in range(1500):
            added.append(batches.add([ones]))  # noqa: PERF401 - seen by nobody until the end

    def send() -> None:
        for _ in range(1500):
            batches.add([ones])
            assert batches.send()

    assert in_threads(add, send) == [None, None]
    assert all(batch.rows()[row][MEAN] == 1 for batch, row, _ in added)


@pytest.mark.usefixtures("hasty_threads")
def test_two_threads_read_the_steps_that_share_a_batch() -> None:
    for _ in range(50):
        batch, row, _ = DeviceBatches().add([torch.ones(20_000)])
        first, second = in_threads(batch.rows, batch.rows)
        assert first[row][MEAN] == second[row][MEAN] == 1


def test_what_is_forgotten_is_still_there_for_whoever_refers_to_it() -> None:
    batches = DeviceBatches()
    batch, row, _ = batches.add([torch.ones(3)])
    batches.forget()
    other, _, _ = batches.add([torch.zeros(3)])
    assert other is not batch
    assert batch.rows()[row][MEAN] == 1


def test_a_copy_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, row, _ = DeviceBatches().add([torch.ones(3)])

    def full(_: object) -> None:
        raise torch.OutOfMemoryError("no memory for the copy")

    with monkeypatch.context() as patched:
        patched.setattr(device_statistics, "HostCopy", full)
        with pytest.raises(torch.OutOfMemoryError):
            batch.send()
    assert batch.rows()[row][MEAN] == 1


def failing(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def kernel() -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(device_kernels, "_kernel", kernel)
    monkeypatch.setattr(device_kernels._Triton, "is_broken", False)


def test_that_the_kernel_cannot_be_compiled_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(monkeypatch, "Failed to find C compiler")
    stream: Any = object()
    for _ in range(2):
        assert device_kernels._fused_results([torch.ones(3)], stream) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Failed to find C compiler" in caplog.text


def test_an_error_of_the_device_does_not_condemn_the_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(monkeypatch, "CUDA error: operation not permitted when stream is capturing")
    stream: Any = object()
    with pytest.raises(RuntimeError, match="not permitted"):
        device_kernels._fused_results([torch.ones(3)], stream)
    assert not device_kernels._Triton.is_broken
    assert not caplog.records
