"""One job that writes much, writes long files or fails takes little of an evaluator from others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchmarks.cost.deployment import Evaluator
from benchmarks.cost.pollers import calls_of
from hook_layer.format.index import MAX_INDEX_BYTES
from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from hook_layer.storage.memory import MemoryStore
from lambdas.evaluate_rule.job_limits import BURST, BURST_OF_ONE_RULE, MAX_BATCH_S, JobLimits
from lambdas.evaluate_rule.messages import TensorObject
from lambdas.shared.settings import EvaluateRuleSettings
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.trial.step_index import iter_step_files
from tests.lambdas.conftest import RUN, MemoryPipeline, index_bytes

ROOT = "s3://tensors/noisy/"
QUIET_P99_S = 1.5
SECONDS = 180
FILE_S, FILE_OF_ONE_RULE_S, OTHER_S = 0.12, 0.01, 0.05
"""Seconds of 29 rules for a file, of one rule, and of the requests of a job, at 512 MB; see the
cost model."""


def objects(count: int, size: int = 1) -> list[TensorObject]:
    return [TensorObject(ROOT, f"index/{number}.json", None, size) for number in range(count)]


def test_above_the_limit_one_message_in_half_a_minute_is_admitted() -> None:
    now = [0.0]
    limits = JobLimits(300, 1000, lambda: now[0])
    marker = TensorObject(ROOT, END_MARKER, None)
    assert len(limits.admit(ROOT, objects(16, 0))) == 16, "a step of 16 ranks at once"
    assert not limits.is_exceeded(ROOT)
    assert len(limits.admit(ROOT, objects(10))) == 1, "the first batch"
    assert limits.admit(ROOT, [*objects(10), marker]) == [marker]
    assert limits.is_exceeded(ROOT)
    assert len(limits.admit("s3://tensors/quiet/", objects(10))) == 10
    now[0] = 29.0
    assert len(limits.admit(ROOT, objects(16, 0))) == 16, "which it has saved up again"
    assert len(limits.admit(ROOT, objects(18))) == 0
    now[0] = 46.0
    assert [found.size for found in limits.admit(ROOT, objects(2, 600))] == [600]


@pytest.mark.parametrize(("burst", "num_ranks"), [(BURST_OF_ONE_RULE, 64), (BURST, 16)])
def test_a_job_that_saves_one_step_a_minute_is_below_the_limit(
    burst: float, num_ranks: int
) -> None:
    now = [0.0]
    limits = JobLimits(300, 1 << 30, lambda: now[0], burst=burst)
    for step in range(20):
        now[0] = 60.0 * step
        sizes = [min(10, num_ranks - first) for first in range(0, num_ranks, 10)]
        assert sum(len(limits.admit(ROOT, objects(size, 0))) for size in sizes) == num_ranks
    assert not limits.is_exceeded(ROOT)


def test_a_job_that_fails_again_and_again_waits() -> None:
    now = [0.0]
    limits = JobLimits(100, 1000, lambda: now[0])
    for number in range(5):
        assert not limits.is_paused(ROOT), number
        limits.report(ROOT, has_failed=True)
    assert limits.is_paused(ROOT)
    now[0] = 31.0
    assert not limits.is_paused(ROOT)


def test_files_that_were_put_off_are_evaluated_and_the_verdict_says_so(
    memory_pipelines: Callable[..., MemoryPipeline],
    trial_files: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = memory_pipelines(job_files_per_minute=50)
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN))
    keys = [index_key(step, "worker_0") for step in range(40)]
    for step, key in enumerate(keys):
        pipeline.store.put(key, index_bytes(step, num_nan=4 * (step == 25)))
    pipeline.store.put(END_MARKER, trial_files.marker_bytes(RUN))
    service = pipeline.service()
    for first in range(0, 40, 5):
        assert not service.evaluate(pipeline.records(keys[first : first + 5]), lambda: 60_000)
    assert 5 <= pipeline.state().counts.evaluated < 40
    logged = [vars(each) for each in caplog.records if each.message == "files put off"]
    assert {each["debug_output_uri"] for each in logged} == {"s3://tensors/mnist-7/debug-output/"}
    assert sum(each["num_files"] for each in logged) > 20
    assert not service.evaluate(pipeline.records([END_MARKER]), lambda: 60_000)
    state = pipeline.state()
    assert (state.status, state.counts.evaluated) == (RuleStatus.ISSUES_FOUND, 40)
    (stored,) = pipeline.states.items.values()
    assert "evaluated in batches" in stored.note


def test_a_file_that_is_too_long_is_not_read() -> None:
    store = MemoryStore()
    key = index_key(0, "worker_0")
    (file,) = iter_step_files(store, [key], {key: MAX_INDEX_BYTES + 1})
    assert file.index is None
    assert "8388609 bytes, at most 8388608 are allowed" in str(file.problem)


def p99_of_quiet_jobs(
    max_files: int, files_per_s: int = 400, burst: float = BURST, file_s: float = FILE_S
) -> float:
    """Return the seconds from a file to its evaluation, of 20 jobs while another one writes much.

    Lambda's pollers are those of the cost model; a call takes what its jobs take one after another.
    """
    chance, now = random.Random(0), [0.0]
    limits = [JobLimits(max_files, 1 << 30, lambda: now[0], chance, burst) for _ in range(5)]
    backlog, done = [0], dict[tuple[str, float], float]()
    times = [number / files_per_s for number in range(files_per_s * SECONDS)]
    noisy = [(at, ("noisy", at)) for at in times]
    quiet = [
        (at := job / 2 + 10 * step, (f"quiet-{job}", at))
        for job in range(20)
        for step in range(SECONDS // 10)
    ]

    def seconds(batch: Sequence[tuple[str, float]]) -> float:
        now[0] = max(now[0], *(at for _, at in batch))
        mine, spent = chance.choice(limits), 0.0
        for job in sorted({job for job, _ in batch}, reverse=True):  # quiet ones first
            found = [each for each in batch if each[0] == job]
            taken = len(mine.admit(job, objects(len(found))))
            backlog[0] += (len(found) - taken) * (job == "noisy")
            spent += OTHER_S + taken * file_s if taken else 0.0
            if job == "noisy" and taken and mine.is_exceeded(job):
                work_s = min(MAX_BATCH_S, backlog[0] * file_s)
                backlog[0] -= int(work_s / file_s)
                spent += work_s
            done.update((each, spent) for each in found)
        return spent

    evaluator = Evaluator("#job-rules", {}, 512, 10, 1, 10, hears_of_steps=True)
    calls = calls_of(evaluator, sorted(noisy + quiet), seconds, chance)
    waits = sorted(
        call.at + done[message] - message[1]
        for call in calls
        for message in call.messages
        if message[0] != "noisy"
    )
    return waits[int(0.99 * len(waits))]


@pytest.mark.parametrize(
    ("burst", "file_s"), [(BURST, FILE_S), (BURST_OF_ONE_RULE, FILE_OF_ONE_RULE_S)]
)
@pytest.mark.parametrize("files_per_s", [8, 20, 40, 100, 400])
def test_quiet_jobs_do_not_wait_for_a_noisy_one(
    burst: float, file_s: float, files_per_s: int
) -> None:
    max_files = EvaluateRuleSettings.job_files_per_minute
    limited = p99_of_quiet_jobs(max_files, files_per_s, burst, file_s)
    print(f"p99 of quiet jobs: {limited:.1f} s with {files_per_s} files/s and the default")
    assert limited < QUIET_P99_S


def test_quiet_jobs_wait_for_a_noisy_one_without_a_limit() -> None:
    assert p99_of_quiet_jobs(1 << 30) > 10 * QUIET_P99_S
