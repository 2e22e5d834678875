"""What is known of a run that goes on, and what is read to know it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.live_page.follower import RunFollower
from rule_runtime.reporting import run_history
from rule_runtime.reporting.html_report import report_of_store
from rule_runtime.reporting.job_verdicts import verdicts_of
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.reporting.test_job_report import CountingStore

RULE = [("NonFinite", create_rule("NonFinite", {}))]


class Running:
    """A run that goes on step by step, and who follows it."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.builder = TrialBuilder(self.store)
        self.now = 0.0
        job = JobFile("mnist-7", "run-1", "local", "2026-11-21T10:00:00Z")
        self.store.put(JOB_FILE, job.encode())
        self.follower = RunFollower(self.store, RULE, clock=lambda: self.now)

    def train(self, first: int, last: int, loss: float = 1.0) -> None:
        for step in range(first, last):
            tensors = {"Loss_output_0": np.float32(loss), "gradient/a": np.full(3, step + 1.0)}
            self.builder.step(step, {**tensors, "a": np.full(3, 2.0)})


def test_only_what_is_new_is_read() -> None:
    running = Running()
    running.train(0, 300)
    assert running.follower.look()
    running.store.reset()
    assert not running.follower.look()
    assert not running.store.gets("index/")
    running.train(300, 303)
    assert running.follower.look()
    index_files = running.store.gets("index/")
    assert len(index_files) == 3
    assert not running.store.gets("events/")
    assert running.follower.numbers().reading.num_steps == 303


def test_a_finding_is_shown_with_what_was_before_it() -> None:
    running = Running()
    running.train(0, 100)
    running.follower.look()
    assert running.follower.numbers().plots == {}
    running.train(100, 103, loss=np.nan)
    running.follower.look()
    running.train(103, 106, loss=np.nan)
    running.follower.look()
    numbers = running.follower.numbers()
    assert [each.status for each in numbers.verdicts] == [RuleStatus.ISSUES_FOUND]
    plot = numbers.plots["NonFinite"]
    assert list(plot.lines[0].steps) == list(range(60, 106))
    assert plot.at == 100
    assert [each.name for each in numbers.findings] == ["NonFinite"]


def test_in_the_end_it_shows_what_the_report_tells() -> None:
    running = Running()
    for first in range(0, 60, 20):
        running.train(first, first + 20)
        running.follower.look()
    running.builder.end()
    assert running.follower.look()
    assert running.follower.has_ended
    assert not running.follower.look()
    shown = running.follower.numbers()
    state = running.builder.evaluate(RULE[0][1])
    reported = report_of_store(running.store, verdicts_of({"NonFinite": state}))
    one, other = shown.to_json(), reported.numbers
    for part in ("verdicts", "curves", "gradients", "updates", "steps", "job", "has_ended"):
        assert one[part] == other[part], part
    assert json.dumps(one, allow_nan=False)


def test_a_long_run_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_history, "MAX_POINTS", 100)
    running = Running()
    running.train(0, 900)
    while running.follower.look():
        pass
    history = running.follower._history
    assert len(history.norms.entries) <= 200
    assert all(len(curve.entries) <= 200 for curve in history.scalars.values())
    steps = sorted(history.norms.entries)
    assert steps[0] == 0
    assert np.diff(steps).max() <= 8
    assert running.follower.numbers().reading.num_steps == 900


def test_verdicts_of_others_are_read_from_their_files() -> None:
    store = MemoryStore()
    builder = TrialBuilder(store)
    store.put(JOB_FILE, JobFile("job", "run-1", "local", "2026-11-21T10:00:00Z").encode())
    builder.step(0, {"Loss_output_0": np.float32(1)})
    follower = RunFollower(store, None)
    assert follower.look()
    assert follower.numbers().verdicts == []


@pytest.mark.parametrize("run", ["run-1", None])
def test_a_run_that_had_ended_before_is_shown_whole(run: str | None) -> None:
    builder = TrialBuilder(run=run)
    for step in range(4):
        builder.step(step, {"Loss_output_0": np.float32(1)})
    builder.end()
    follower = RunFollower(builder.store, RULE)
    while follower.look():
        pass
    assert follower.has_ended
    assert follower.numbers().reading.num_steps == 4
