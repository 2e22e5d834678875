"""The account that a hook gives."""

from __future__ import annotations

import time

import pytest

from hook_layer.core.state import HookState
from hook_layer.delivery.counters import WriterCounters
from hook_layer.guard import FailureLog, Stopwatch, guarded
from hook_layer.report import HookReport
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import W, make_hook


def test_a_report_has_steps_tensors_and_times(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    assert hook.report() == HookReport()
    assert hook.report().training_s_per_step == 0
    for _ in range(3):
        hook.train(W)
        hook.save_scalar("lr", 1)
    hook.close()
    report = hook.report()
    assert (report.steps_seen, report.writer.steps_written) == (3, 3)
    assert report.writer.tensors_written == 6
    assert report.is_complete
    assert 0 < report.training_s < 1
    assert report.training_s_per_step == report.training_s / 3
    assert 0 < report.close_s < 5
    lines = str(report).splitlines()
    assert lines[0].startswith("steps seen: 3, stored: 3, ")
    assert lines[1].startswith("time in training: ")
    assert lines[1].endswith(" s to close")
    assert lines[2:] == ["tensors stored: 6"]


def test_a_report_for_people_says_what_went_wrong() -> None:
    writer = WriterCounters(
        steps_written=1_200,
        steps_dropped=2,
        steps_undelivered=1,
        steps_spooled=7,
        steps_in_spool=3,
        spool_folder="/spool",
        bytes_written=5 << 30,
        waits=4,
        wait_s=1.25,
        errors=9,
        first_error="StorageError: 503",
        export_errors=8,
        tensorboard_steps_lost=9,
    )
    text = str(HookReport(2_000, 5, {"modules": 6}, writer, 2.5, training_run=1))
    assert text.splitlines() == [
        "not complete: steps seen: 2,000, stored: 1,200, 5 GiB",
        "time in training: 2.5 s, 1.25 ms a step",
        "resumed: 1",
        "waits for memory: 4, 1.25 s",
        (
            "steps dropped: 2, steps not delivered: 1, steps that TensorBoard lacks: 9, "
            "tensors that came too late: 5"
        ),
        "steps that waited on local disk: 7, still in /spool: 3",
        "errors in modules: 6, errors while storing steps: 9, errors of exporters: 8",
        "first error: StorageError: 503",
    ]


def test_what_waits_on_disk_is_missing_once_the_hook_is_closed() -> None:
    writer = WriterCounters(steps_in_spool=1, spool_folder="/spool")
    assert HookReport(1, writer=writer).is_complete
    assert not HookReport(1, writer=writer, close_s=0.1).is_complete


class Sleeper:
    def __init__(self) -> None:
        self.failures = FailureLog()
        self.stopwatch = Stopwatch()
        self.state = HookState()

    @guarded("sleep")
    def sleep(self, depth: int = 0, *, fail: bool = False) -> None:
        time.sleep(0.01)
        if depth:
            self.sleep(depth - 1, fail=fail)
        elif fail:
            raise KeyError("x")


@pytest.mark.parametrize("fail", [True, False])
def test_time_is_counted_once_however_deep_a_call_goes(fail: bool) -> None:
    sleeper = Sleeper()
    started = time.perf_counter()
    sleeper.sleep(2, fail=fail)
    elapsed = time.perf_counter() - started
    assert 0.03 <= sleeper.stopwatch.seconds <= elapsed
