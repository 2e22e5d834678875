"""Whose word counts: what a foreign `job.json` can do to a job of SageMaker, and what it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline
from tests.lambdas.stop_job.jobs import (
    ARN,
    JOB,
    LOCAL,
    LOOP,
    NEXT_RUN,
    NOBODY,
    ROOT,
    RUN,
    create_training_job,
    finding_of,
    job_status,
    native_finding,
    own_event,
    stop_file,
    stopped_by,
)

FOREIGN = "someone-elses-playground/x/"


def foreign_finding(pipeline: Pipeline, root: str = FOREIGN, **job: Any) -> dict[str, Any]:
    """Let the evaluator find an issue below a root; return the detail of its event."""
    pipeline.put_job(root=root, **job)
    pipeline.put_step(0, root=root, num_nan=1)
    pipeline.deliver()
    *_, finding = pipeline.announced()
    return finding


class TestAJobFileUnderAForeignRoot:
    @pytest.mark.parametrize("arn", [ARN, None])
    def test_does_not_stop_the_job_that_it_names(self, pipeline: Pipeline, arn: str | None) -> None:
        create_training_job(pipeline)
        detail = foreign_finding(pipeline, training_job_arn=arn)
        assert "TrainingJobArn" not in detail
        assert pipeline.stop(own_event(detail)) is None
        assert job_status(pipeline) == "InProgress"
        assert stop_file(pipeline, FOREIGN) is not None, "its own loop may end"

    @pytest.mark.parametrize(
        "arn",
        [
            ARN.replace("mnist-7", "another"),
            ARN.replace("training-job", "processing-job"),
            "arn:aws:sagemaker:eu-west-1:1:training-job/mnist-7",
            "mnist-7",
        ],
    )
    def test_the_arn_must_be_that_of_the_job(self, pipeline: Pipeline, arn: str) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline, training_job_arn=arn)
        assert "TrainingJobArn" not in detail
        assert stopped_by(pipeline, own_event(detail)) == LOOP

    def test_does_not_keep_the_job_from_being_stopped(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        pipeline.put_job()
        pipeline.put_step(0)
        pipeline.put_job(root="zzz/x/", opt_out_of_stop=True)
        pipeline.put_step(0, root="zzz/x/")
        pipeline.deliver()
        assert stopped_by(pipeline, native_finding()) == JOB | LOOP
        assert stop_file(pipeline, "zzz/x/") is None

    @pytest.mark.parametrize("platform", ["sagemaker", "local"])
    def test_does_not_draw_a_direct_invocation_to_itself(
        self, pipeline: Pipeline, platform: str
    ) -> None:
        create_training_job(pipeline)
        for root in ("a/x/", "b/x/"):
            foreign_finding(pipeline, root, platform=platform, opt_out_of_stop=True)
        assert pipeline.stop(native_finding(source=None)) is None
        assert job_status(pipeline) == "Stopping"
        assert stop_file(pipeline, "a/x/") is None

    def test_does_not_hide_the_job_behind_others(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        for number in range(3):
            foreign_finding(pipeline, f"a{number}/x/")
        detail = finding_of(pipeline)
        query, pages = clients.dynamodb().query, []

        def small_pages(**arguments: Any) -> Any:
            pages.append(arguments)
            return query(**arguments, Limit=1)

        pipeline.patch.setattr(clients.dynamodb(), "query", small_pages)
        assert pipeline.stop(native_finding()) is None
        assert len(pages) >= 4
        assert stop_file(pipeline) is not None
        pages.clear()
        assert pipeline.stop(own_event(detail)) is None
        (states,) = pages
        assert ":partition" in states["ExpressionAttributeValues"], "jobs are got by key"


def test_a_stop_does_not_wait_for_its_cause(pipeline: Pipeline) -> None:
    create_training_job(pipeline)
    detail = finding_of(pipeline)

    def fails(**_: Any) -> Any:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "Query")

    pipeline.patch.setattr(clients.dynamodb(), "query", fails)
    assert pipeline.stop(own_event(detail)) is None
    signal = stop_file(pipeline)
    assert signal is not None
    assert signal["Reason"].startswith("gradient/conv.weight: ")


class TestDirectInvocations:
    def test_a_root_alone_names_the_run_that_writes_there(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline, **LOCAL)
        del detail["RunId"]
        assert pipeline.stop(detail) is None
        assert job_status(pipeline) == "InProgress", "the job outside SageMaker is meant"
        signal = stop_file(pipeline)
        assert signal is not None
        assert signal["RunId"] == RUN

    def test_a_root_may_have_another_name_than_its_job(self, pipeline: Pipeline) -> None:
        detail = foreign_finding(pipeline, **LOCAL)
        assert pipeline.stop(detail) is None
        assert stop_file(pipeline, FOREIGN) is not None

    def test_of_two_jobs_of_one_name_the_root_says_which(self, pipeline: Pipeline) -> None:
        for root in ("bob/mnist-7/", "alice/mnist-7/"):
            foreign_finding(pipeline, root, **LOCAL)
        event = native_finding(source=None, DebugOutputUri="s3://tensors/alice/mnist-7/")
        assert pipeline.stop(event) is None
        assert stop_file(pipeline, "alice/mnist-7/") is not None
        assert stop_file(pipeline, "bob/mnist-7/") is None

    @pytest.mark.parametrize(
        "changes", [{"RunId": NEXT_RUN}, {"DebugOutputUri": "s3://tensors/elsewhere/"}]
    )
    def test_what_is_not_registered_stops_no_other_job(
        self, pipeline: Pipeline, changes: dict[str, Any]
    ) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        assert stopped_by(pipeline, {**detail, **changes}) == NOBODY

    def test_a_registered_job_of_sagemaker(self, pipeline: Pipeline) -> None:
        create_training_job(pipeline)
        detail = finding_of(pipeline)
        assert detail["DebugOutputUri"] == f"s3://tensors/{ROOT}"
        assert detail["TrainingJobArn"] == ARN
        assert pipeline.stop(detail) is None
        assert job_status(pipeline) == "Stopping"
