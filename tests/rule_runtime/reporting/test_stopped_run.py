"""A run that a rule stopped is told as such, wherever it is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hook_layer.format.job_file import JobFile, StopFile
from hook_layer.format.paths import JOB_FILE, STOP_FILE
from hook_layer.storage.base import Store
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime.cli.watch import shown
from rule_runtime.live_page.follower import RunFollower
from rule_runtime.reporting.html_report import report_of_store
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.cli.invoking import invoke

REASON = "NonFinite: <b>a</b>: 3 of 3 elements are NaN"
STOPPED = "stopped by NonFinite at step 2"


def stopped_run(store: Store, *, has_ended: bool = True, **stop: object) -> None:
    trial = TrialBuilder(store)
    run = trial.run or ""
    store.put(JOB_FILE, JobFile("job", run, "unknown", "").encode())
    trial.step(2, {"a": np.float32([1.0])})
    said = {
        "run_id": run, "rule_configuration_name": "NonFinite", "evidence": {"step": 2}, **stop
    }  # fmt: skip
    store.put(STOP_FILE, StopFile(REASON, "2026-11-21T10:00:00Z", **said).encode())
    if has_ended:
        trial.end()


def test_the_report_names_the_rule_the_step_and_the_reason() -> None:
    store = MemoryStore()
    stopped_run(store)
    report = report_of_store(store, [])
    assert f"<dd>{STOPPED}</dd>" in report.html
    assert "NonFinite: &lt;b&gt;a&lt;/b&gt;: 3 of 3" in report.html
    assert report.numbers["stop"] == {
        "rule": "NonFinite",
        "step": 2,
        "reason": REASON,
        "requested_at": "2026-11-21T10:00:00Z",
    }


def test_a_run_that_stopped_later_than_the_finding_has_both_steps() -> None:
    store = MemoryStore()
    stopped_run(store, evidence={"step": 0})
    reported = "stopped by NonFinite: found at step 0, run stopped at step 2"
    assert f"<dd>{reported}</dd>" in report_of_store(store, []).html


def test_one_that_goes_on_was_asked_to() -> None:
    store = MemoryStore()
    stopped_run(store, has_ended=False)
    assert f"<dd>asked to stop: {STOPPED}".replace(STOPPED, "by NonFinite at step 2") in (
        report_of_store(store, []).html
    )


@pytest.mark.parametrize(
    ("stop", "reported"),
    [
        ({"run_id": None}, STOPPED),
        ({"rule_configuration_name": None, "evidence": None}, "stopped on request"),
        ({"evidence": {"step": "<i>"}}, "stopped by NonFinite"),
        ({"run_id": "another"}, "ended"),
    ],
)
def test_a_request_may_say_less_or_mean_another_run(stop: dict[str, object], reported: str) -> None:
    store = MemoryStore()
    stopped_run(store, **stop)
    report = report_of_store(store, [])
    assert f"<dd>{reported}</dd>" in report.html
    assert (report.numbers["stop"] is None) == (reported == "ended")


def test_a_request_that_cannot_be_read_is_none() -> None:
    store = MemoryStore()
    stopped_run(store)
    store.put(STOP_FILE, b"{")
    assert report_of_store(store, []).numbers["stop"] is None


def test_the_terminal_tells_it_too() -> None:
    store = MemoryStore()
    stopped_run(store, has_ended=False)
    follower = RunFollower(store, [])
    follower.look()
    assert "by NonFinite at step 2" in str(shown(follower.numbers()).renderables[0])
    TrialBuilder(store).end()
    follower = RunFollower(store, [])
    while not follower.has_ended:
        follower.look()
    assert STOPPED in str(shown(follower.numbers()).renderables[0])


def test_status_and_report_agree(tmp_path: Path) -> None:
    stopped_run(LocalStore(tmp_path / "job"))
    assert "job: Stopped" in invoke("status", "job", "--output-path", tmp_path)[1]
    file = tmp_path / "report.json"
    assert invoke("report", tmp_path / "job", "--output-file", file)[0] == 0
    assert json.loads(file.read_text())["stop"]["rule"] == "NonFinite"
