"""Which jobs may be stopped under each stop policy; by default only those that opted in."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from infra.local.moto_patches.training_jobs import patch_training_job_life
from lambdas.contracts import environment
from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline
from tests.lambdas.stop_job.jobs import (
    ARN,
    JOB,
    LOCAL,
    LOOP,
    MAIL,
    NOBODY,
    NOTHING_TO_DO,
    STOP,
    create_training_job,
    finding_of,
    job_status,
    native_finding,
    own_event,
    stop_file,
    stopped_by,
)
from tests.lambdas.stop_job.test_confirmation import confirm, let_pass
from tests.lambdas.stop_job.test_containers import (
    BATCH_ARN,
    JOB_ID,
    REASON,
    ROOT_URI,
    TAG,
    described_job,
)

SOURCES = ["aws.sagemaker", None]
"""Of events that name a job by its name alone: SageMaker's own, and direct invocations."""


@pytest.fixture(autouse=True)
def default_policy(any_job_may_be_stopped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.STOP_POLICY)
    patch_training_job_life()


def tag_job(pipeline: Pipeline, value: str) -> None:
    """Create the training job with the tag."""
    create_training_job(pipeline)
    tags = [{"Key": TAG, "Value": value}, {"Key": "team", "Value": "b"}]
    pipeline.aws("sagemaker").add_tags(ResourceArn=ARN, Tags=tags)


class TestWithoutOptIn:
    def test_a_finding_stops_neither_job_nor_loop(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        for event in (own_event(detail), detail, *(native_finding(source=s) for s in SOURCES)):
            assert stopped_by(pipeline, event) == NOBODY

    @pytest.mark.parametrize("source", SOURCES)
    def test_nor_a_job_that_is_not_registered(self, pipeline: Pipeline, source: str | None) -> None:
        create_training_job(pipeline)
        assert stopped_by(pipeline, native_finding(source=source)) == NOBODY

    def test_nor_a_job_elsewhere(self, pipeline: Pipeline) -> None:
        detail = finding_of(pipeline, **LOCAL)
        assert stopped_by(pipeline, own_event(detail)) == NOBODY


class TestByJobFile:
    def test_ends_the_loop_of_a_job_elsewhere(self, pipeline: Pipeline) -> None:
        detail = finding_of(pipeline, **LOCAL, actions=(STOP,))
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    def test_ends_the_loop_of_a_sagemaker_job_and_asks_sagemaker_nothing(
        self, pipeline: Pipeline
    ) -> None:
        """A training process can write `job.json`, so it is no consent to StopTrainingJob."""
        create_training_job(pipeline)
        detail = finding_of(pipeline, actions=(STOP,))
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    def test_only_by_the_rules_that_stop_jobs(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_RULES, "NonFinite")
        detail = finding_of(pipeline, **LOCAL, actions=(STOP,))
        assert pipeline.stop(own_event(detail)) == NOTHING_TO_DO


class TestByTag:
    @pytest.mark.parametrize("place", [ROOT_URI, ROOT_URI[:-1], "s3://tensors/mnist-7"])
    def test_stops_the_job_and_its_loop(self, pipeline: Pipeline, place: str) -> None:
        tag_job(pipeline, place)
        assert stopped_by(pipeline, own_event(finding_of(pipeline))) == JOB | LOOP

    @pytest.mark.parametrize("is_registered", [True, False])
    @pytest.mark.parametrize("source", SOURCES)
    def test_also_on_the_word_of_sagemaker_or_of_an_invoker(
        self, pipeline: Pipeline, source: str | None, is_registered: bool
    ) -> None:
        tag_job(pipeline, ROOT_URI)
        if is_registered:
            finding_of(pipeline)
        assert pipeline.stop(native_finding(source=source)) is None
        assert job_status(pipeline) == "Stopping"
        assert (stop_file(pipeline) is not None) is is_registered

    @pytest.mark.parametrize(
        "place", ["", "s3://", "s3://tensors", "s3://elsewhere/mnist-7/debug-output/", "never"]
    )
    def test_only_where_it_names_a_folder_of_a_watched_bucket(
        self, pipeline: Pipeline, place: str
    ) -> None:
        tag_job(pipeline, place)
        detail = finding_of(pipeline)
        for event in (own_event(detail), *(native_finding(source=s) for s in SOURCES)):
            assert stopped_by(pipeline, event) == NOBODY

    def test_a_folder_of_the_jobs_name_elsewhere_is_not_meant(self, pipeline: Pipeline) -> None:
        """Whoever may write to such a folder can end its own loop, and nothing else."""
        tag_job(pipeline, "s3://tensors/team-b/")
        detail = finding_of(pipeline, actions=(STOP,))
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    @pytest.mark.parametrize("job", [{"actions": (MAIL,)}, {"opt_out_of_stop": True}])
    def test_job_json_can_withdraw_it(self, pipeline: Pipeline, job: dict[str, Any]) -> None:
        tag_job(pipeline, ROOT_URI)
        assert stopped_by(pipeline, own_event(finding_of(pipeline, **job))) == NOBODY

    def test_stops_a_job_of_batch(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.STOP_PLATFORMS, "batch")
        detail = finding_of(pipeline, platform="batch", training_job_arn=BATCH_ARN)
        with Stubber(clients.batch()) as batch:
            batch.add_response("describe_jobs", described_job())
            assert pipeline.stop(own_event(detail)) == NOTHING_TO_DO, "a job without the tag"
            for _ in range(2):
                batch.add_response("describe_jobs", described_job(**{TAG: ROOT_URI}))
            batch.add_response("terminate_job", {}, {"jobId": JOB_ID, "reason": REASON})
            assert pipeline.stop(own_event(detail)) is None
            batch.assert_no_pending_responses()


class TestTagsThatCannotBeRead:
    def refuse(self, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
        def paginator(_: str) -> Any:
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "ListTags")

        monkeypatch.setattr(clients.sagemaker(), "get_paginator", paginator)

    def test_without_leave_to_read_them_no_job_opted_in(self, pipeline: Pipeline) -> None:
        tag_job(pipeline, ROOT_URI)
        self.refuse(pipeline.patch, "AccessDeniedException")
        assert stopped_by(pipeline, native_finding()) == NOBODY

    def test_those_that_cannot_be_read_now_are_read_later(self, pipeline: Pipeline) -> None:
        tag_job(pipeline, ROOT_URI)
        with pipeline.patch.context() as patch:
            self.refuse(patch, "ThrottlingException")
            with pytest.raises(ClientError, match="Throttling"):
                pipeline.stop(native_finding())
        assert pipeline.stop(native_finding()) is None
        assert job_status(pipeline) == "Stopping"


STOPPED = {
    "opt_in": {"asks": LOOP, "tagged": JOB | LOOP},
    "observe": {},
    "watched": {"plain": JOB | LOOP, "asks": JOB | LOOP, "tagged": JOB | LOOP},
    "all": {"plain": JOB | LOOP, "asks": JOB | LOOP, "tagged": JOB | LOOP, "unknown": JOB},
}
"""What is stopped of a SageMaker job by stop policy and kind of job; nothing of others.
`unknown` is a job that is not registered and has no tag."""


@pytest.mark.parametrize("kind", ["plain", "asks", "tagged", "never", "unknown"])
@pytest.mark.parametrize("policy", STOPPED)
def test_who_is_stopped_under_each_policy(pipeline: Pipeline, policy: str, kind: str) -> None:
    pipeline.patch.setenv(environment.STOP_POLICY, policy)
    tags = {"tagged": ROOT_URI, "never": "never"}
    if kind in tags:
        tag_job(pipeline, tags[kind])
    else:
        create_training_job(pipeline)
    if kind != "unknown":
        finding_of(pipeline, actions=(STOP,) if kind == "asks" else ())
    assert stopped_by(pipeline, native_finding()) == STOPPED[policy].get(kind, NOBODY)


def test_a_request_is_not_repeated_once_the_policy_is_to_observe(pipeline: Pipeline) -> None:
    tag_job(pipeline, ROOT_URI)
    requests: list[Any] = []
    pipeline.patch.setattr(
        clients.sagemaker(), "stop_training_job", lambda **job: requests.append(job)
    )
    assert pipeline.stop(own_event(finding_of(pipeline))) is None
    pipeline.patch.setenv(environment.STOP_POLICY, "observe")
    pipeline.stop_job._service.cache_clear()
    let_pass(pipeline, 601)
    confirm(pipeline)
    assert len(requests) == 1
