"""Training jobs to stop, and the events about them."""

from __future__ import annotations

import json
from typing import Any

from tests.lambdas.conftest import Pipeline

NOBODY: frozenset[str] = frozenset()
JOB, LOOP = frozenset({"job"}), frozenset({"loop"})
"""Parts of a job that an event stops: the job itself, or only its training loop by `stop.json`."""
NOTHING_TO_DO = {"statusCode": 200, "body": json.dumps("Nothing to do")}
REGION = "eu-west-1"
ACCOUNT = "123456789012"
ROOT = "mnist-7/debug-output/"
RULE = "ExplodingTensor"
ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/mnist-7"
RUN = "01JD0000000000000000000001"
NEXT_RUN = "01JD0000000000000000000002"
LOCAL: dict[str, Any] = {"platform": "local", "training_job_arn": None}
STOP = {"name": "stoptraining"}
MAIL = {"name": "email", "endpoint": "me@example.com"}
SHAPES: list[Any] = [None, [], {}, "text", 5, True, 1e300, [[]], {"a": {}}, "\ud800", "x" * 5000]
"""JSON without what an event needs."""


def state_change(
    *statuses: tuple[str, str], source: str | None = "aws.sagemaker", **detail: Any
) -> dict[str, Any]:
    """Return an event in the shape of SageMaker's own."""
    event: dict[str, Any] = {
        "version": "0",
        "id": "844e2571-85d4-695f-b930-0153b71dcb42",
        "detail-type": "SageMaker Training Job State Change",
        "source": source,
        "account": ACCOUNT,
        "time": "2026-11-20T12:24:11Z",
        "region": REGION,
        "resources": [f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/mnist-7"],
        "detail": {
            "TrainingJobName": "mnist-7",
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Training",
            "DebugRuleEvaluationStatuses": [
                {
                    "RuleConfigurationName": name,
                    "RuleEvaluationStatus": status,
                    "LastModifiedTime": 1795212403000,
                }
                for name, status in statuses
            ],
            **detail,
        },
    }
    if source is None:
        del event["source"]
    return event


def native_finding(**detail: Any) -> dict[str, Any]:
    return state_change((RULE, "IssuesFound"), **detail)


def own_event(detail: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "source": "stepwatch.debugger",
        "detail-type": "SageMaker Training Job State Change",
        "detail": {**detail, **changes},
    }


def create_training_job(pipeline: Pipeline, name: str = "mnist-7") -> None:
    pipeline.aws("sagemaker").create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        RoleArn=f"arn:aws:iam::{ACCOUNT}:role/training",
        OutputDataConfig={"S3OutputPath": "s3://tensors/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
    )


def job_status(pipeline: Pipeline, name: str = "mnist-7") -> str:
    described = pipeline.aws("sagemaker").describe_training_job(TrainingJobName=name)
    status: str = described["TrainingJobStatus"]
    return status


def stop_file(pipeline: Pipeline, root: str = ROOT) -> dict[str, Any] | None:
    s3 = pipeline.aws("s3")
    keys = [o["Key"] for o in s3.list_objects_v2(Bucket="tensors").get("Contents", [])]
    if root + "stop.json" not in keys:
        return None
    answer = s3.get_object(Bucket="tensors", Key=root + "stop.json")
    content: dict[str, Any] = json.loads(answer["Body"].read())
    return content


def finding_of(pipeline: Pipeline, run: str = RUN, **job: Any) -> dict[str, Any]:
    """Let the evaluator find an issue; return the detail of its event."""
    pipeline.put_job(run, **job)
    pipeline.put_step(3, sequence=1, run=run, num_nan=2)
    pipeline.deliver()
    *_, finding = pipeline.announced()
    return finding


def stopped_by(pipeline: Pipeline, event: object, root: str = ROOT) -> frozenset[str]:
    """Send an event to the function; return what of the job `mnist-7` is stopped then."""
    answer = pipeline.stop(event)
    listed = pipeline.aws("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    names = {job["TrainingJobName"] for job in listed}
    is_stopping = "mnist-7" in names and job_status(pipeline) == "Stopping"
    stopped = (JOB if is_stopping else NOBODY) | (LOOP if stop_file(pipeline, root) else NOBODY)
    assert answer == (None if stopped else NOTHING_TO_DO)
    return stopped
