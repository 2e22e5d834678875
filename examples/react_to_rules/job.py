"""The job: its rules, and its request to SageMaker."""

from __future__ import annotations

from typing import Any

import boto3

from stepwatch import PreparedJob, prepare
from stepwatch.configuration import (
    CollectionConfig,
    DebuggerHookConfig,
    Rule,
    StopTraining,
    rule_configs,
)

__all__ = ["RULES", "create_training_job", "prepare_job"]

RULES = [
    Rule.sagemaker(
        rule_configs.vanishing_gradient(),
        collections_to_save=[CollectionConfig("gradients", {"save_interval": 10})],
        actions=StopTraining(),
    ),
    Rule.sagemaker(
        rule_configs.loss_not_decreasing(),
        collections_to_save=[CollectionConfig("losses", {"save_interval": 10})],
    ),  # no action: it only reports
]
HOOK = DebuggerHookConfig(hook_parameters={"stop_poll_s": 0.5})
REQUEST: dict[str, Any] = {
    "AlgorithmSpecification": {"TrainingImage": "my-image", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/training",
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
"""What has nothing to do with Stepwatch; image and role are yours."""


def prepare_job(output_path: str) -> PreparedJob:
    """Check the job's configuration, and store it where the job's hook reads it."""
    return prepare(base_job_name="warm-up", output_path=output_path, hook_config=HOOK, rules=RULES)


def create_training_job(prepared: PreparedJob) -> str:
    """Ask SageMaker to run the job, and return its ARN."""
    created = boto3.client("sagemaker").create_training_job(
        **prepared.training_job_request(REQUEST)
    )
    return created["TrainingJobArn"]
