"""Training jobs of the emulator: they run, are stopped, and carry the statuses of rules."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.local.moto_patches.training_jobs import announced_statuses, finish_training_job
from infra.local.service_environment import ACCOUNT_ID, REGION
from lambdas.contracts.events import NATIVE_SOURCE, STATUS_DETAIL_TYPE, STATUS_SOURCE

ISSUES_FOUND = {"RuleConfigurationName": "R", "RuleEvaluationStatus": "IssuesFound"}
NO_ISSUES = {"RuleConfigurationName": "Q", "RuleEvaluationStatus": "NoIssuesFound"}


def create_job(bench: Any, name: str = "job") -> Any:
    sagemaker = bench.client("sagemaker")
    sagemaker.create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={"TrainingImage": "i", "TrainingInputMode": "File"},
        RoleArn=f"arn:aws:iam::{ACCOUNT_ID}:role/training",
        OutputDataConfig={"S3OutputPath": "s3://tensors/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )
    return sagemaker


def job_status(sagemaker: Any) -> tuple[str, str]:
    described = sagemaker.describe_training_job(TrainingJobName="job")
    return described["TrainingJobStatus"], described["SecondaryStatus"]


@pytest.mark.parametrize(("exit_code", "status"), [(0, "Completed"), (1, "Failed")])
def test_a_job_runs_until_it_is_finished(bench: Any, exit_code: int, status: str) -> None:
    sagemaker = create_job(bench)
    assert job_status(sagemaker) == ("InProgress", "Training")
    assert "TrainingEndTime" not in sagemaker.describe_training_job(TrainingJobName="job")
    assert finish_training_job(ACCOUNT_ID, REGION, "job", exit_code) == status
    assert job_status(sagemaker) == (status, status)
    assert "TrainingEndTime" in sagemaker.describe_training_job(TrainingJobName="job")
    with pytest.raises(ValueError, match=f"it is {status}"):
        finish_training_job(ACCOUNT_ID, REGION, "job", 0)
    with pytest.raises(ClientError, match=f"the training job is in status {status}\\."):
        sagemaker.stop_training_job(TrainingJobName="job")


def test_a_job_is_stopped(bench: Any) -> None:
    url, arn = bench.add_queue("changes")
    bench.subscribe("changes", {"source": [NATIVE_SOURCE]}, {"Arn": arn})
    sagemaker = create_job(bench)
    sagemaker.stop_training_job(TrainingJobName="job")
    sagemaker.stop_training_job(TrainingJobName="job")
    assert job_status(sagemaker) == ("Stopping", "Stopping")
    assert finish_training_job(ACCOUNT_ID, REGION, "job", 1) == "Stopped"
    with pytest.raises(ClientError) as caught:
        sagemaker.stop_training_job(TrainingJobName="job")
    assert caught.value.response["Error"] == {
        "Code": "ValidationException",
        "Message": "The request was rejected because the training job is in status Stopped.",
    }
    events = bench.bodies(url)
    assert {event["detail-type"] for event in events} == {STATUS_DETAIL_TYPE}
    states = [event["detail"]["TrainingJobStatus"] for event in events]
    assert states == ["InProgress", "Stopping", "Stopped"]


def test_names_of_jobs_are_checked(bench: Any) -> None:
    sagemaker = create_job(bench)
    with pytest.raises(ClientError, match="ResourceInUse"):
        create_job(bench)
    with pytest.raises(ClientError, match=r"ValidationException.*Requested resource not found"):
        sagemaker.stop_training_job(TrainingJobName="another")
    with pytest.raises(ValueError, match="it is missing"):
        finish_training_job(ACCOUNT_ID, REGION, "another", 0)


def test_announced_statuses_are_recorded_and_not_described(bench: Any) -> None:
    sagemaker = create_job(bench)
    assert announced_statuses(ACCOUNT_ID, REGION, "job") == []
    for status in ({**ISSUES_FOUND, "RuleEvaluationStatus": "InProgress"}, NO_ISSUES, ISSUES_FOUND):
        detail = {
            "TrainingJobName": "job",
            "DebugRuleEvaluationStatuses": [{**status, "LastModifiedTime": 1795212403000}],
        }
        bench.put_event(STATUS_SOURCE, STATUS_DETAIL_TYPE, detail)
    bench.put_event(STATUS_SOURCE, STATUS_DETAIL_TYPE, {"TrainingJobName": "elsewhere"})
    described = sagemaker.describe_training_job(TrainingJobName="job")
    assert "DebugRuleEvaluationStatuses" not in described
    statuses = announced_statuses(ACCOUNT_ID, REGION, "job")
    found = {s["RuleConfigurationName"]: s["RuleEvaluationStatus"] for s in statuses}
    assert found == {"R": "IssuesFound", "Q": "NoIssuesFound"}
    assert {status["LastModifiedTime"].year for status in statuses} == {2026}
