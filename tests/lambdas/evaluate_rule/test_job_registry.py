"""What the evaluators know of a job, and when they look again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hook_layer.format.job_file import parse_job_file
from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from lambdas.shared import clients
from lambdas.shared.registration import Registration, RegistrationTable
from rule_runtime.configuration.requested_rules import RequestedRule
from tests.lambdas.conftest import MemoryPipeline

RUN = "01JD0000000000000000000001"
NEXT_RUN = "01JD0000000000000000000002"
RULE = "ExplodingTensor"
ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/mnist-7"
OTHER = ({"RuleConfigurationName": "Other"},)


@pytest.fixture
def pipeline(memory_pipelines: Callable[..., MemoryPipeline]) -> MemoryPipeline:
    return memory_pipelines()


def put_step(pipeline: MemoryPipeline, files: Any, step: int, run: str, sequence: int) -> str:
    key = index_key(step, "worker_0")
    pipeline.store.put(key, files.index_bytes(step, run=run, sequence=sequence))
    return key


def test_job_json_is_read_once_a_run(
    pipeline: MemoryPipeline, trial_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    get = pipeline.store.get

    def noted(key: str, *arguments: Any) -> bytes:
        reads.append(key)
        return get(key, *arguments)

    monkeypatch.setattr(pipeline.store, "get", noted)
    service = pipeline.service()
    for run in (RUN, NEXT_RUN):
        pipeline.store.put(JOB_FILE, trial_files.job_bytes(run))
        for step in range(3):
            key = put_step(pipeline, trial_files, step, run, step + 1)
            assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
        (registration,) = pipeline.registrations.find("mnist-7")
        assert registration.run_id == run
        assert reads.count(JOB_FILE) == 2, "once, and once more after registering"
        reads.clear()


def test_a_late_event_of_an_earlier_run_does_not_undo_the_registration(
    pipeline: MemoryPipeline, trial_files: Any
) -> None:
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(NEXT_RUN))
    key = put_step(pipeline, trial_files, 7, RUN, 8)
    for _ in range(2):
        assert not pipeline.service().evaluate(pipeline.records([key]), lambda: 60_000)
    (registration,) = pipeline.registrations.find("mnist-7")
    assert registration.run_id == NEXT_RUN


def test_who_registered_an_outdated_run_looks_again(
    pipeline: MemoryPipeline, trial_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN))
    key = put_step(pipeline, trial_files, 0, NEXT_RUN, 1)
    put = pipeline.registrations.put

    def put_late(registration: Registration) -> None:
        # While this evaluator was slow the next run began, and another evaluator registered it.
        pipeline.store.put(JOB_FILE, trial_files.job_bytes(NEXT_RUN))
        put(registration)

    monkeypatch.setattr(pipeline.registrations, "put", put_late)
    assert not pipeline.service().evaluate(pipeline.records([key]), lambda: 60_000)
    (registration,) = pipeline.registrations.find("mnist-7")
    assert registration.run_id == NEXT_RUN


def test_without_job_json_the_newest_run_is_registered(
    pipeline: MemoryPipeline, trial_files: Any
) -> None:
    service = pipeline.service()
    for step, run in enumerate((RUN, NEXT_RUN, RUN)):
        key = put_step(pipeline, trial_files, step, run, step + 1)
        assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
    (registration,) = pipeline.registrations.find("store")
    assert registration.run_id == NEXT_RUN


def test_a_job_json_that_comes_after_the_first_index_file_counts(
    pipeline: MemoryPipeline, trial_files: Any
) -> None:
    service = pipeline.service()
    key = put_step(pipeline, trial_files, 0, RUN, 1)
    assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN, opt_out_of_stop=True))
    pipeline.now += 2
    key = put_step(pipeline, trial_files, 1, RUN, 2)
    assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
    (registration,) = pipeline.registrations.find("mnist-7")
    assert (registration.run_id, registration.opt_out_of_stop) == (RUN, True)


@pytest.mark.parametrize("has_waited", [True, False])
def test_a_new_run_that_asks_for_the_rule_is_noticed(
    pipeline: MemoryPipeline, trial_files: Any, has_waited: bool
) -> None:
    service = pipeline.service()
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN, debug_rule_configurations=OTHER))
    key = put_step(pipeline, trial_files, 0, RUN, 1)
    assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(NEXT_RUN))
    key = put_step(pipeline, trial_files, 0, NEXT_RUN, 1)
    assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
    assert pipeline.statuses() == [], "the older job.json is still believed"
    if has_waited:
        pipeline.now += 31
        key = put_step(pipeline, trial_files, 1, NEXT_RUN, 2)
    else:
        pipeline.store.put(END_MARKER, trial_files.marker_bytes(NEXT_RUN))
        key = END_MARKER
    assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
    assert pipeline.state(NEXT_RUN).counts.evaluated == (2 if has_waited else 1)


def test_a_new_run_that_does_not_ask_for_the_rule_is_not_judged(
    pipeline: MemoryPipeline, trial_files: Any
) -> None:
    service = pipeline.service()
    for run, rules in ((RUN, None), (NEXT_RUN, OTHER)):
        job = trial_files.job_bytes(run, debug_rule_configurations=rules)
        pipeline.store.put(JOB_FILE, job)
        key = put_step(pipeline, trial_files, 0, run, 1)
        assert not service.evaluate(pipeline.records([key]), lambda: 60_000)
    assert {key.run_id for key in pipeline.states.items} == {RUN}


@pytest.mark.parametrize("run", ["a#b", "x" * 65, "", "a b", "\u2028", "läufe"])
def test_a_run_id_that_is_none_is_ignored(
    pipeline: MemoryPipeline, trial_files: Any, run: str
) -> None:
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN))
    key = put_step(pipeline, trial_files, 0, run, 1)
    pipeline.store.put(END_MARKER, trial_files.marker_bytes(run))
    records = pipeline.records([key, END_MARKER])
    assert not pipeline.service().evaluate(records, lambda: 60_000)
    assert RUN not in {state.run_id for state in pipeline.states.items}


@pytest.mark.usefixtures("aws")
class TestRegistrationTable:
    def test_registrations_are_kept_apart_by_name_and_root(self) -> None:
        table = RegistrationTable(clients.dynamodb(), "states")
        first = Registration("s3://tensors/a/nightly/", "nightly", RUN, "local", None, None, True)
        second = Registration("s3://tensors/b/nightly/", "nightly", RUN)
        other = Registration("s3://tensors/a/nightly-2/", "nightly-2", RUN)
        for registration in (first, second, other):
            table.put(registration)
        assert table.find("nightly") == [first, second]
        assert table.find("nightly-") == []
        table.put(Registration("s3://tensors/b/nightly/", "nightly", NEXT_RUN))
        assert [found.run_id for found in table.find("nightly")] == [RUN, NEXT_RUN]
        assert table.get("nightly", first.root_uri) == first
        assert table.get("nightly", other.root_uri) is None
        assert table.get("nightly", "s3://tensors/" + "ü" * 600) is None, "too long for a key"

    def test_rules_are_not_stored(self) -> None:
        table = RegistrationTable(clients.dynamodb(), "states")
        rules = {"ü" * 200 + str(number): RequestedRule({"a": "é" * 2000}) for number in range(200)}
        table.put(Registration("s3://tensors/a/", "a", RUN, rules=rules))
        assert table.find("a") == [Registration("s3://tensors/a/", "a", RUN)]

    @pytest.mark.parametrize(
        ("root", "arn", "is_sagemaker_job"),
        [
            ("s3://tensors/mnist-7/debug-output/", ARN, True),
            ("s3://tensors/mnist-7/debug-output/", None, True),
            ("s3://tensors/team/mnist-7/", ARN, True),
            ("s3://tensors/mnist-7/other/", ARN, False),
            ("s3://tensors/mnist-70/debug-output/", ARN, False),
            ("s3://tensors/x/", ARN, False),
            ("s3://tensors/x/", None, False),
            ("s3://tensors/mnist-7/", ARN + "0", False),
            ("s3://tensors/mnist-7/", ARN.replace("sagemaker", "s3"), False),
            ("s3://tensors/mnist-7/", "", False),
        ],
    )
    def test_a_job_of_sagemaker_lies_below_its_name(
        self, trial_files: Any, root: str, arn: str | None, is_sagemaker_job: bool
    ) -> None:
        data = trial_files.job_bytes(RUN, training_job_arn=arn)
        job = parse_job_file(data, file="job.json")
        registration = Registration.of_job_file(root, job)
        assert registration.is_sagemaker_job is is_sagemaker_job
        assert registration.training_job_arn == (arn if is_sagemaker_job else None)
        table = RegistrationTable(clients.dynamodb(), "states")
        table.put(registration)
        assert table.get("mnist-7", root) == registration

    def test_what_a_job_file_says_is_bounded(self, trial_files: Any) -> None:
        data = trial_files.job_bytes(
            "r" * 99_999, platform="p" * 99_999, training_job_name="n" * 300
        )
        registration = Registration.of_job_file(
            "s3://tensors/a/", parse_job_file(data, file="job.json")
        )
        assert registration == Registration("s3://tensors/a/", "a", "", "unknown")

    @pytest.mark.parametrize(
        ("root", "name", "is_sagemaker_job"),
        [
            ("s3://tensors/mnist-7/debug-output/", "mnist-7", True),
            ("s3://tensors/runs/mnist-7/", "mnist-7", False),
            ("s3://tensors/", "tensors", False),
        ],
    )
    def test_a_job_without_job_json(self, root: str, name: str, is_sagemaker_job: bool) -> None:
        registration = Registration.of_root(root)
        assert registration.training_job_name == name
        assert registration.is_sagemaker_job is is_sagemaker_job
        assert registration.rules is None
