"""Workers that stop together, or not at all."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from hook_layer.format.job_file import StopFile
from hook_layer.run.stop_agreement import StopAgreement, StopGroup

REQUEST = StopFile("gradients vanish", "2026-11-20T10:00:00Z", "RUN", "Vanishing")
TIMEOUT_S = 20.0


@pytest.fixture(autouse=True)
def _switch_threads_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


class DictStore:
    """A key-value store in memory, which fails on request."""

    def __init__(self) -> None:
        self.content: dict[str, str] = {}
        self.fails: Callable[[str], bool] = lambda _: False
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        self._checked(key)
        with self._lock:
            self.content[key] = value

    def get(self, key: str) -> bytes:
        self._checked(key)
        return self.content[key].encode()

    def check(self, keys: list[str]) -> bool:
        self._checked(*keys)
        return all(key in self.content for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        self._checked(key)
        assert not expected
        with self._lock:
            return self.content.setdefault(key, desired).encode()

    def _checked(self, *keys: str) -> None:
        if any(self.fails(key) for key in keys):
            raise RuntimeError("Connection was likely closed")


@dataclass
class Worker:
    """A worker that trains step by step; each step needs all workers."""

    rank: int
    size: int
    store: DictStore
    barrier: threading.Barrier
    name: str = "Net"
    timeout_s: float = TIMEOUT_S
    request: StopFile | None = None
    num_steps: int = 0
    stopped: StopFile | None = None
    agreement: StopAgreement = field(init=False)

    def __post_init__(self) -> None:
        group = StopGroup(self.store, "run", self.rank, self.size, self.name)
        self.agreement = StopAgreement(
            group, lambda: self.request, poll_s=0.001, timeout_s=self.timeout_s
        )

    def begin(self) -> bool:
        self.stopped = self.agreement.begin_step()
        return self.stopped is None

    def train(self) -> None:
        """Do what a collective operation does: wait for the others."""
        self.num_steps += 1
        self.barrier.wait(TIMEOUT_S)


Loop = Callable[[Worker], None]


def until_raised(worker: Worker) -> None:
    while worker.begin():
        worker.train()


def until_read(worker: Worker, every: int = 1) -> None:
    while worker.num_steps % every or worker.agreement.stop_now() is None:
        worker.begin()
        worker.train()
    worker.stopped = worker.agreement.stop_now()


def until_read_at_the_top(worker: Worker) -> None:
    while True:
        worker.begin()
        worker.stopped = worker.agreement.stop_now()
        if worker.stopped is not None:
            return
        worker.train()


LOOPS: list[Loop] = [
    until_raised,
    until_read,
    lambda worker: until_read(worker, 3),
    until_read_at_the_top,
]


def run(workers: list[Worker], loop: Loop, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Let all workers train at the same time."""
    errors: list[BaseException] = []

    def guarded(worker: Worker) -> None:
        try:
            loop(worker)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)
            worker.barrier.abort()

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in workers]
    with ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.agreement.close)
        for thread in threads:
            thread.start()
        meanwhile()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)


def make_workers(size: int, **options: object) -> list[Worker]:
    store, barrier = DictStore(), threading.Barrier(size)
    return [Worker(rank, size, store, barrier, **options) for rank in range(size)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def at_step(worker: Worker, step: int, action: Callable[[], None]) -> Callable[[], None]:
    def wait() -> None:
        wait_until(lambda: worker.num_steps >= step)
        action()

    return wait


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("size", [2, 5])
def test_all_stop_after_the_same_step(size: int, loop: Loop, seed: int) -> None:
    workers = make_workers(size)
    asked = random.Random(seed).choice(workers)

    def ask() -> None:
        asked.request = REQUEST

    run(workers, loop, at_step(workers[0], 5 * seed, ask))
    assert len({worker.num_steps for worker in workers}) == 1
    assert workers[0].num_steps >= 5 * seed
    assert [worker.stopped for worker in workers] == [REQUEST] * size
    assert [worker.agreement.stop_now() for worker in workers] == [REQUEST] * size


def test_one_worker_may_read_and_notify_the_others() -> None:
    workers = make_workers(3)
    said: list[bool] = []

    def loop(worker: Worker) -> None:
        while True:
            worker.begin()
            worker.train()
            if worker.rank == 0:
                said.append(worker.agreement.stop_now() is not None)
            worker.barrier.wait(TIMEOUT_S)
            if said[worker.num_steps - 1]:
                return

    def ask() -> None:
        workers[0].request = REQUEST

    run(workers, loop, at_step(workers[0], 5, ask))
    assert len({worker.num_steps for worker in workers}) == 1


def test_a_worker_that_waits_for_a_held_one_is_not_in_its_way() -> None:
    """Worker 1 is in a step that worker 0 has not begun when both see the request."""
    workers = make_workers(2)
    first, second = workers
    for worker in workers:
        worker.begin()
    second.begin()
    first.request = REQUEST
    waiting = threading.Thread(target=second.train)
    waiting.start()
    for worker in workers:
        worker.agreement._thread.join(TIMEOUT_S)  # both have said where they are
    assert first.begin()
    first.train()
    waiting.join(TIMEOUT_S)
    assert not first.begin()
    assert not second.begin()
    for worker in workers:
        worker.agreement.close()


def steps(num: int) -> Loop:
    def loop(worker: Worker) -> None:
        while worker.num_steps < num and worker.begin():
            worker.train()

    return loop


def test_nobody_is_held_before_all_take_part(caplog: pytest.LogCaptureFixture) -> None:
    store, barrier = DictStore(), threading.Barrier(2)
    first = Worker(0, 3, store, barrier, request=REQUEST)
    second = Worker(1, 3, store, barrier)

    def wait_for_warning() -> None:
        wait_until(lambda: caplog.text.count("nobody stops") >= 2)

    run([first, second], steps(200), wait_for_warning)
    assert (first.num_steps, second.num_steps) == (200, 200)
    assert not any(key.startswith("run/step") for key in store.content)


def test_hooks_of_different_models_do_not_agree(caplog: pytest.LogCaptureFixture) -> None:
    store, barrier = DictStore(), threading.Barrier(2)
    workers = [Worker(rank, 2, store, barrier, name) for rank, name in enumerate(["Net", "Other"])]
    workers[0].request = REQUEST
    for worker in workers:
        worker.agreement._thread.join(TIMEOUT_S)
    run(workers, steps(3))
    assert [worker.num_steps for worker in workers] == [3, 3]
    assert "watches Other, that of rank 0 Net" in caplog.text


def test_without_an_answer_in_time_all_train_on(caplog: pytest.LogCaptureFixture) -> None:
    store, barrier = DictStore(), threading.Barrier(2)
    store.set("run/member/2", "Net")  # a worker that does not answer any more
    workers = [Worker(rank, 3, store, barrier, timeout_s=0.05) for rank in range(2)]
    workers[1].request = REQUEST

    def bounded(worker: Worker) -> None:
        while worker.num_steps < 50 and worker.begin():
            assert worker.agreement.stop_now() is None
            worker.train()
            if worker.num_steps == 25:
                wait_until(lambda: f"run/step/{worker.rank}" in store.content)  # it is held

    run(workers, bounded)
    for worker in workers:
        worker.agreement._thread.join(TIMEOUT_S)
    assert [worker.num_steps for worker in workers] == [50, 50]
    assert store.content["run/decision"] == "nobody"
    assert "not all ranks answered" in caplog.text


def test_the_decision_is_one_however_late_the_answers_are() -> None:
    outcomes = set()
    for number in range(30):
        workers = make_workers(2, timeout_s=0.0002 * number)
        workers[number % 2].request = REQUEST
        run(workers, steps(30))
        stopped = {worker.stopped for worker in workers}
        assert len(stopped) == len({worker.num_steps for worker in workers}) == 1
        outcomes |= stopped
    assert REQUEST in outcomes


@pytest.mark.parametrize("part", ["member", "request", "step", "decision"])
def test_a_store_that_fails_does_not_touch_training(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    workers = make_workers(2, timeout_s=0.1)
    workers[0].store.fails = lambda key: part in key
    workers[0].request = REQUEST

    def wait_for_warning() -> None:
        wait_until(lambda: part == "request" or "can no longer agree" in caplog.text)

    run(workers, steps(100), wait_for_warning)
    for worker in workers:
        worker.agreement._thread.join(TIMEOUT_S)
    assert [worker.num_steps for worker in workers] == [100, 100]
    assert not any(worker.stopped for worker in workers)


def test_a_store_that_is_gone_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    store = DictStore()
    group = StopGroup(store, "run", 0, 2, is_alive=lambda: False)
    agreement = StopAgreement(group, lambda: REQUEST, poll_s=0.001)
    agreement._thread.join(TIMEOUT_S)
    assert agreement.begin_step() is None
    agreement.close()
    assert not caplog.records


def test_a_hook_that_is_closed_ends_the_agreement(caplog: pytest.LogCaptureFixture) -> None:
    first, second = make_workers(2)
    second.agreement.close()
    first.request = REQUEST
    first.agreement._thread.join(TIMEOUT_S)
    assert first.begin()
    assert first.agreement.stop_now() is None
    assert "a rank closed its hook" in caplog.text


def test_a_hook_may_be_closed_while_it_is_held() -> None:
    store, barrier = DictStore(), threading.Barrier(2)
    store.set("run/member/2", "Net")  # a worker that does not answer
    workers = [Worker(rank, 3, store, barrier) for rank in range(2)]
    workers[0].request = REQUEST
    wait_until(lambda: workers[1].agreement._is_held)
    workers[1].agreement.close()
    workers[0].agreement._thread.join(TIMEOUT_S)
    assert all(worker.begin() for worker in workers)
    assert store.content["run/decision"] == "nobody"
    workers[0].agreement.close()


def test_idle_workers_write_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    workers = make_workers(2)
    run(workers, steps(50))
    assert set(workers[0].store.content) == {"run/member/0", "run/member/1", "run/request"}
    assert workers[0].store.content["run/request"] == "closed"
    assert not caplog.records
