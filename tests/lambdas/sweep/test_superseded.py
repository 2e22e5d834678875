"""A run that ended without a word, and after which another one of the job began."""

from __future__ import annotations

from typing import cast

import pytest

from hook_layer.format.paths import JOB_FILE, index_key
from hook_layer.storage.memory import MemoryStore
from lambdas.evaluate_rule.job_registry import JobRegistry
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import RegistrationTable
from tests.lambdas.conftest import RUN, MemoryRegistrations, Pipeline, index_bytes, job_bytes

NEWER = "01JD0000000000000000000002"


@pytest.fixture
def killed(pipeline: Pipeline) -> Pipeline:
    """A job whose process was killed after two steps."""
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.put_step(1)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress"]
    return pipeline


def begin_again(pipeline: Pipeline) -> None:
    """Start the job anew in the same folder, as a restart of a training script does."""
    pipeline.put_job(NEWER)
    pipeline.put(index_key(0, "worker_0"), index_bytes(0, run=NEWER))
    pipeline.deliver()


def sweep(pipeline: Pipeline) -> None:
    pipeline.sweep()
    pipeline.deliver()


def test_it_is_judged_when_its_last_files_must_have_come(killed: Pipeline) -> None:
    begin_again(killed)
    killed.statuses()
    killed.grow_quiet(300)
    sweep(killed)
    assert killed.statuses() == []
    killed.grow_quiet(620)
    sweep(killed)
    (detail,) = killed.announced()
    assert detail["RunId"] == RUN
    (status,) = detail["DebugRuleEvaluationStatuses"]
    assert status["RuleEvaluationStatus"] == "NoIssuesFound"
    assert "no output for 62" in status["StatusDetails"]
    assert "active" not in killed.state_item()
    assert killed.state_item(NEWER)["ended"] == {"BOOL": False}


def test_the_newer_one_is_not(killed: Pipeline) -> None:
    begin_again(killed)
    killed.statuses()
    killed.grow_quiet(3650, run=NEWER)
    sweep(killed)
    assert killed.statuses() == []
    assert killed.state_item(NEWER)["ended"] == {"BOOL": False}


def test_without_a_newer_one_silence_means_nothing_yet(killed: Pipeline) -> None:
    killed.grow_quiet(3650)
    sweep(killed)
    assert killed.statuses() == []
    assert killed.state_item()["ended"] == {"BOOL": False}


def test_files_that_no_event_told_of_are_judged_first(killed: Pipeline) -> None:
    killed.put_step(2, num_nan=1)
    killed.aws("sqs").purge_queue(QueueUrl=killed.queue_url)
    begin_again(killed)
    killed.statuses()
    killed.grow_quiet(620)
    sweep(killed)
    assert "IssuesFound" in killed.statuses()


def test_a_process_that_heard_of_no_newer_run_looks_again() -> None:
    now, store = [0.0], MemoryStore("mnist-7/debug-output")
    store.put(JOB_FILE, job_bytes())
    registry = JobRegistry(
        cast("RegistrationTable", MemoryRegistrations()), Telemetry("any"), clock=lambda: now[0]
    )
    assert not registry.has_successor(store, RUN)
    store.put(JOB_FILE, job_bytes(NEWER))
    now[0] = 60
    assert not registry.has_successor(store, RUN), "what it read a moment ago is believed"
    now[0] = 660
    assert registry.has_successor(store, RUN)
    assert not registry.has_successor(store, NEWER)
