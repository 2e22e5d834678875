"""The jobs of a soak: the same each time, of every kind, and as sick as they are said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.writer import StepWriter
from hook_layer.format.paths import index_key
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepReader
from tests.soak.expected import expected_verdicts
from tests.soak.plan import RULES, Ending, JobPlan, drawn_jobs
from tests.soak.tensors import saved_arrays, step_record

SIZE: Any = {"num_jobs": 50, "span_s": 300.0, "files_per_s": 6.0, "rules": tuple(RULES)}


@pytest.fixture(scope="module")
def jobs() -> list[JobPlan]:
    return drawn_jobs(0, **SIZE)


def test_a_seed_gives_the_same_jobs_again(jobs: list[JobPlan]) -> None:
    assert drawn_jobs(0, **SIZE) == jobs
    assert drawn_jobs(1, **SIZE) != jobs


def test_there_are_jobs_of_every_kind(jobs: list[JobPlan]) -> None:
    runs = [run for job in jobs for run in job.runs]
    assert {job.ending for job in jobs} == set(Ending)
    assert {job.num_workers for job in jobs} == {1, 2, 3}
    assert {run.sickness.rule for run in runs if run.sickness} == set(RULES)
    assert any(job.opts_out and job.runs[-1].sickness for job in jobs)
    assert any(len(job.runs) == 2 for job in jobs)
    assert any(run.interrupted_after is not None for run in runs)
    assert any(len(step.writers) < job.num_workers for job in jobs for step in job.runs[0].steps)
    assert any(step.lossy for run in runs for step in run.steps)


def test_they_write_in_their_time_and_about_as_much_as_asked_for(jobs: list[JobPlan]) -> None:
    for job in jobs:
        times = [step.at_s for run in job.runs for step in run.steps]
        steps = [step.step for run in job.runs for step in run.steps]
        assert times == sorted(times)
        assert steps == sorted(set(steps))
        assert 0 <= times[0] <= times[-1] <= SIZE["span_s"]
    num_files = sum(run.num_files for job in jobs for run in job.runs)
    assert num_files == pytest.approx(SIZE["files_per_s"] * SIZE["span_s"], rel=0.3)


@pytest.mark.parametrize("seed", range(2))
def test_each_rule_finds_what_it_is_to_find_and_nothing_else(seed: int) -> None:
    for job in drawn_jobs(seed, **{**SIZE, "num_jobs": 24, "files_per_s": 2.0}):
        store = stored(job)
        found = expected_verdicts(store, RULES, num_workers=job.num_workers)
        assert set(found) == {(run.run_id, rule) for run in job.runs for rule in RULES}
        for run in job.runs:
            for rule in RULES:
                verdict = found[run.run_id, rule]
                step = verdict.evidence.step if verdict.evidence else None
                assert step == run.findings.get(rule), (job.name, rule, verdict)
                assert verdict.status is not RuleStatus.ERROR, (job.name, rule)


def stored(job: JobPlan) -> MemoryStore:
    """Return what a job stores, if nobody interrupts it."""
    store = MemoryStore(job.name)
    for run in job.runs:
        trial = TrialBuilder(store, run=run.run_id, num_workers=job.num_workers)
        for step in run.steps:
            for worker in step.writers:
                trial.step(
                    step.step,
                    saved_arrays(run, step, worker),
                    mode=step.mode,
                    mode_step=step.mode_step,
                    worker=f"worker_{worker}",
                )
    return store


def test_the_hooks_writer_stores_the_same_tensors(jobs: list[JobPlan]) -> None:
    job = next(job for job in jobs if job.num_workers == 1)
    (run, *_), store = job.runs, MemoryStore("written")
    writer = StepWriter(store, RunIdentity(run.run_id, "worker_0"))
    for step in run.steps:
        writer.submit(step_record(run, step, 0))
    writer.close()
    reader = StepReader(store)
    for step in run.steps:
        (file,) = load_step_files(store, [index_key(step.step, "worker_0")])
        view = reader.view(step.step, [file], num_workers=1)
        assert (view.mode, view.mode_step) == (step.mode, step.mode_step)
        for name, array in saved_arrays(run, step, 0).items():
            np.testing.assert_array_equal(view.value(name, "worker_0"), array)
