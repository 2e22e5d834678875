"""Jobs of AWS Batch and tasks of ECS: only the tag of the job gives consent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from lambdas.contracts import environment
from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline
from tests.lambdas.stop_job.jobs import LOOP, finding_of, own_event, stop_file, stopped_by

ACCOUNT = "123456789012"
JOB_ID = "aa11bb22-cc33-4455-8899-0123456789ab"
BATCH_ARN = f"arn:aws:batch:eu-west-1:{ACCOUNT}:job/{JOB_ID}"
TASK_ARN = f"arn:aws:ecs:eu-west-1:{ACCOUNT}:task/training/0123456789abcdef0123456789abcdef"
TAG = "stepwatch:debug-output"
ROOT_URI = "s3://tensors/mnist-7/debug-output/"
REASON = (
    "ExplodingTensor: A number is not finite: seen at step 3 in gradient/conv.weight, "
    "by 1 of 1 rule so far; gradient/conv.weight: 2 of 4 elements are NaN (worker_0, TRAIN)"
)


@pytest.fixture
def batch(pipeline: Pipeline) -> Iterator[Stubber]:
    """The function's client of Batch, which takes the prepared requests and no other."""
    pipeline.patch.setenv(environment.STOP_PLATFORMS, "batch, ecs")
    with Stubber(clients.batch()) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def ecs(pipeline: Pipeline) -> Iterator[Stubber]:
    """The function's client of ECS, which takes the prepared requests and no other."""
    pipeline.patch.setenv(environment.STOP_PLATFORMS, "ecs")
    with Stubber(clients.ecs()) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def described_job(status: str = "RUNNING", arn: str = BATCH_ARN, **tags: str) -> dict[str, Any]:
    job = {
        "jobName": "train",
        "jobId": JOB_ID,
        "jobArn": arn,
        "jobQueue": "queue",
        "jobDefinition": "definition",
        "startedAt": 0,
        "status": status,
        "tags": tags,
    }
    return {"jobs": [job]}


def described_task(status: str = "RUNNING", **tags: str) -> dict[str, Any]:
    listed = [{"key": key, "value": value} for key, value in tags.items()]
    return {"tasks": [{"taskArn": TASK_ARN, "lastStatus": status, "tags": listed}]}


def finding(pipeline: Pipeline, arn: str = BATCH_ARN, platform: str = "batch") -> dict[str, Any]:
    return own_event(finding_of(pipeline, platform=platform, training_job_arn=arn))


@pytest.mark.parametrize(
    "place", [ROOT_URI, ROOT_URI[:-1], "s3://tensors/mnist-7", "s3://tensors/"]
)
def test_a_job_whose_tag_names_the_root_is_terminated(
    pipeline: Pipeline, batch: Stubber, place: str
) -> None:
    for _ in range(2):
        batch.add_response("describe_jobs", described_job(**{TAG: place}), {"jobs": [JOB_ID]})
    batch.add_response("terminate_job", {}, {"jobId": JOB_ID, "reason": REASON})
    assert stopped_by(pipeline, finding(pipeline)) == LOOP


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"owner": ROOT_URI},
        {TAG: ""},
        {TAG: "/"},
        {TAG: "s3://"},
        {TAG: "s3:"},
        {TAG: "s3://tensors/mnist-7/debug"},
        {TAG: "s3://tensors/another-job/"},
        {TAG: "s3://tensors/another-job/../mnist-7/"},
        {TAG: "s3://tensor"},
        {TAG: "s3://tensors"},
    ],
)
def test_any_other_job_is_left_alone_whatever_job_json_says(
    pipeline: Pipeline, batch: Stubber, tags: dict[str, str]
) -> None:
    batch.add_response("describe_jobs", described_job(**tags), {"jobs": [JOB_ID]})
    assert pipeline.stop(finding(pipeline)) is None
    assert stop_file(pipeline) is not None, "its own loop may end"


def test_a_job_of_another_account_or_region_is_left_alone(
    pipeline: Pipeline, batch: Stubber
) -> None:
    foreign = BATCH_ARN.replace("eu-west-1", "us-east-1")
    batch.add_response("describe_jobs", described_job(**{TAG: ROOT_URI}), {"jobs": [JOB_ID]})
    assert pipeline.stop(finding(pipeline, foreign)) is None
    batch.assert_no_pending_responses()


@pytest.mark.parametrize("answer", [{"jobs": []}, described_job("SUCCEEDED", **{TAG: ROOT_URI})])
def test_a_job_that_is_gone_needs_no_request(
    pipeline: Pipeline, batch: Stubber, answer: dict[str, Any]
) -> None:
    batch.add_response("describe_jobs", answer, {"jobs": [JOB_ID]})
    assert pipeline.stop(finding(pipeline)) is None


def test_off_unless_the_operator_says_so(pipeline: Pipeline) -> None:
    with Stubber(clients.batch()):  # takes no request at all
        assert stopped_by(pipeline, finding(pipeline)) == LOOP


def test_a_platform_that_is_not_listed_is_not_asked(pipeline: Pipeline) -> None:
    pipeline.patch.setenv(environment.STOP_PLATFORMS, "ecs")
    with Stubber(clients.batch()):
        assert pipeline.stop(finding(pipeline)) is None


def test_the_tag_may_have_another_name(pipeline: Pipeline, batch: Stubber) -> None:
    pipeline.patch.setenv(environment.STOP_TAG, "watched-by")
    for _ in range(2):
        batch.add_response("describe_jobs", described_job(**{"watched-by": ROOT_URI}))
    batch.add_response("terminate_job", {})
    assert pipeline.stop(finding(pipeline)) is None


def test_a_job_json_of_another_run_names_no_job(pipeline: Pipeline, batch: Stubber) -> None:
    event = finding(pipeline)
    pipeline.put_job("01JD0000000000000000000009", platform="batch", training_job_arn=BATCH_ARN)
    pipeline.aws("sqs").purge_queue(QueueUrl=pipeline.queue_url)
    assert pipeline.stop(event) is None
    batch.assert_no_pending_responses()


def test_the_loop_hears_of_it_although_the_platform_refuses(
    pipeline: Pipeline, batch: Stubber
) -> None:
    for _ in range(2):
        batch.add_response("describe_jobs", described_job(**{TAG: ROOT_URI}))
    batch.add_client_error("terminate_job", "AccessDeniedException")
    with pytest.raises(ClientError, match="AccessDenied"):
        pipeline.stop(finding(pipeline))
    assert stop_file(pipeline) is not None


def test_a_task_of_ecs(pipeline: Pipeline, ecs: Stubber) -> None:
    asked = {"cluster": "training", "tasks": [TASK_ARN], "include": ["TAGS"]}
    for _ in range(2):
        ecs.add_response("describe_tasks", described_task(**{TAG: ROOT_URI}), asked)
    ecs.add_response("stop_task", {}, {"cluster": "training", "task": TASK_ARN, "reason": REASON})
    assert stopped_by(pipeline, finding(pipeline, TASK_ARN, "ecs")) == LOOP


def test_a_task_without_the_tag(pipeline: Pipeline, ecs: Stubber) -> None:
    ecs.add_response("describe_tasks", described_task(team="b"))
    assert pipeline.stop(finding(pipeline, TASK_ARN, "ecs")) is None


def test_a_cluster_that_does_not_exist(pipeline: Pipeline, ecs: Stubber) -> None:
    ecs.add_client_error("describe_tasks", "ClusterNotFoundException")
    assert stopped_by(pipeline, finding(pipeline, TASK_ARN, "ecs")) == LOOP


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:batch:eu-west-1:1:job/x",
        f"arn:aws:batch:eu-west-1:{ACCOUNT}:job-queue/x",
        f"arn:aws:ecs:eu-west-1:{ACCOUNT}:task/x",
        f"arn:aws:ecs:eu-west-1:{ACCOUNT}:service/training/x",
        BATCH_ARN + "\n",
        "batch",
    ],
)
def test_what_is_no_arn_of_a_job_is_not_asked_for(
    pipeline: Pipeline, batch: Stubber, arn: str
) -> None:
    assert stopped_by(pipeline, finding(pipeline, arn)) == LOOP
