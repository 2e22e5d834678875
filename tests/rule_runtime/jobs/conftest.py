"""An AWS account in moto, with a bucket for jobs and what a deployment says of itself."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.sagemaker.models import SageMakerModelBackend
from moto.sagemaker.responses import SageMakerResponse

from infra.local.moto_patches import training_jobs

REGION = "eu-west-1"
BUCKET = "my-bucket"
RULE_BUCKET = "my-rules"
OUTPUT = f"s3://{BUCKET}/output"


@dataclass(frozen=True)
class Account:
    """The account, and short ways to what tests look at."""

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name=REGION)

    def text(self, uri: str) -> str:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        body: bytes = self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        return body.decode()

    def keys(self, bucket: str = BUCKET) -> list[str]:
        listed = self.client("s3").list_objects_v2(Bucket=bucket)
        return [found["Key"] for found in listed.get("Contents", ())]

    def deploy(self, log_groups: Mapping[str, str], custom_rules: Mapping[str, str]) -> None:
        """Make what of a deployment the library asks: its outputs and two functions' variables."""
        notify = {"STEPWATCH_RULE_LOG_GROUPS": json.dumps(dict(log_groups))}
        job_rules = {
            "STEPWATCH_CUSTOM_RULES": json.dumps(dict(custom_rules)),
            "STEPWATCH_CUSTOM_RULE_BUCKET": RULE_BUCKET,
        }
        role = self._role()
        for name, variables in (("notify", notify), ("job-rules", job_rules)):
            self.client("lambda").create_function(
                FunctionName=name,
                Runtime="python3.13",
                Role=role,
                Handler="a.b",
                Code={"ZipFile": _empty_archive()},
                Environment={"Variables": variables},
            )
        outputs = {"NotifyFunctionName": "notify", "JobRulesFunctionName": "job-rules"}
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {name: {"Value": value} for name, value in outputs.items()},
        }
        self.client("cloudformation").create_stack(
            StackName="Stepwatch-dev", TemplateBody=json.dumps(template)
        )

    def _role(self) -> str:
        created = self.client("iam").create_role(RoleName="any", AssumeRolePolicyDocument="{}")
        return str(created["Role"]["Arn"])

    def start_training_job(self, **members: Any) -> None:
        self.client("sagemaker").create_training_job(
            **{
                "AlgorithmSpecification": {"TrainingImage": "any", "TrainingInputMode": "File"},
                "RoleArn": "arn:aws:iam::123456789012:role/training",
                "OutputDataConfig": {"S3OutputPath": OUTPUT},
                "ResourceConfig": {
                    "InstanceType": "ml.m5.large",
                    "InstanceCount": 1,
                    "VolumeSizeInGB": 1,
                },
                "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
                **members,
            }
        )


def _empty_archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a.py", "")
    return data.getvalue()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, REGION)
    # Tests of the local target leave an emulator behind whose jobs go on until they are ended.
    for owner, name, as_it_comes in (
        (SageMakerModelBackend, "create_training_job", training_jobs._create_training_job),
        (SageMakerModelBackend, "describe_training_job", training_jobs._describe_training_job),
        (SageMakerResponse, "create_training_job", training_jobs._respond_to_create),
    ):
        monkeypatch.setattr(owner, name, as_it_comes)
    with mock_aws():
        found = Account()
        for bucket in (BUCKET, RULE_BUCKET):
            found.client("s3").create_bucket(
                Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION}
            )
        yield found
