"""A registration speaks for SageMaker's job only where SageMaker says that the job writes."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline, refusal
from tests.lambdas.stop_job.jobs import (
    JOB,
    LOOP,
    finding_of,
    job_status,
    native_finding,
    own_event,
    stop_file,
    stopped_by,
)


def create_training_job(pipeline: Pipeline, **configuration: Any) -> None:
    pipeline.aws("sagemaker").create_training_job(
        TrainingJobName="mnist-7",
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        RoleArn="arn:aws:iam::123456789012:role/training",
        OutputDataConfig={"S3OutputPath": "s3://tensors/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
        **configuration,
    )


@pytest.mark.parametrize(
    "path", ["s3://tensors", "s3://tensors/", "s3://tensors/mnist-7/debug-output"]
)
def test_a_root_below_the_output_path_is_the_jobs(pipeline: Pipeline, path: str) -> None:
    create_training_job(pipeline, DebugHookConfig={"S3OutputPath": path})
    assert stopped_by(pipeline, own_event(finding_of(pipeline))) == JOB | LOOP


@pytest.mark.parametrize(
    "path", ["s3://tensors/team-b", "s3://tensor", "s3://elsewhere/mnist-7/debug-output"]
)
def test_a_folder_of_the_same_name_elsewhere_is_not(pipeline: Pipeline, path: str) -> None:
    create_training_job(pipeline, DebugHookConfig={"S3OutputPath": path})
    assert pipeline.stop(own_event(finding_of(pipeline))) is None
    assert job_status(pipeline) == "InProgress"
    assert stop_file(pipeline) is not None, "its own loop may end"


def test_a_root_among_the_checkpoints_is_the_jobs(pipeline: Pipeline) -> None:
    create_training_job(
        pipeline,
        DebugHookConfig={"S3OutputPath": "s3://elsewhere/"},
        CheckpointConfig={"S3Uri": "s3://tensors/mnist-7"},
    )
    assert pipeline.stop(own_event(finding_of(pipeline))) is None
    assert job_status(pipeline) == "Stopping"


@pytest.mark.parametrize("source", ["aws.sagemaker", None])
def test_another_folder_of_its_name_cannot_opt_the_job_out(
    pipeline: Pipeline, source: str | None
) -> None:
    create_training_job(pipeline, DebugHookConfig={"S3OutputPath": "s3://tensors/team-b"})
    finding_of(pipeline, opt_out_of_stop=True)
    assert stopped_by(pipeline, native_finding(source=source)) == JOB


def test_without_leave_to_ask_the_name_must_do(pipeline: Pipeline) -> None:
    create_training_job(pipeline, DebugHookConfig={"S3OutputPath": "s3://elsewhere/"})

    detail = finding_of(pipeline)
    pipeline.patch.setattr(
        clients.sagemaker(),
        "describe_training_job",
        refusal("AccessDeniedException", "not allowed"),
    )
    assert pipeline.stop(own_event(detail)) is None
    assert job_status(pipeline) == "Stopping"


def test_a_job_that_cannot_be_looked_at_now_is_looked_at_later(pipeline: Pipeline) -> None:
    create_training_job(pipeline)
    detail = finding_of(pipeline)
    with pipeline.patch.context() as patch:
        patch.setattr(
            clients.sagemaker(),
            "describe_training_job",
            refusal("ThrottlingException", "Rate exceeded"),
        )
        with pytest.raises(ClientError, match="Throttling"):
            pipeline.stop(own_event(detail))
    assert job_status(pipeline) == "InProgress"
    assert pipeline.stop(own_event(detail)) is None
    assert job_status(pipeline) == "Stopping"
