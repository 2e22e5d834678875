"""The events that pass between the parts: names, patterns and keys of the state table."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "NATIVE_SOURCE",
    "REGISTRATION_RULE",
    "STATE_PARTITION_KEY",
    "STATE_SORT_KEY",
    "STATE_TTL_ATTRIBUTE",
    "STATUS_DETAIL_TYPE",
    "STATUS_SCHEMA_VERSION",
    "STATUS_SOURCE",
    "attempts_partition",
    "issues_found_pattern",
    "registration_partition",
    "tensor_object_pattern",
]

STATUS_SOURCE: Final = "stepwatch.debugger"
NATIVE_SOURCE: Final = "aws.sagemaker"
STATUS_DETAIL_TYPE: Final = "SageMaker Training Job State Change"
STATUS_SCHEMA_VERSION: Final = 1

STATE_PARTITION_KEY: Final = "run"
"""State items: `<trial root URI>#<RunId>`; registrations: `job#<TrainingJobName>`; notes of
attempts: `attempts#<trial root URI>`."""
STATE_SORT_KEY: Final = "rule"
STATE_TTL_ATTRIBUTE: Final = "expires_at"
REGISTRATION_RULE: Final = "#registration"
"""Begins the sort key of a registration item, its trial root URI follows; no rule configuration
name begins with `#`."""


def registration_partition(training_job_name: str) -> str:
    """Return the partition key of a job's registrations."""
    return f"job#{training_job_name}"


def attempts_partition(root_uri: str) -> str:
    """Return the partition key of the notes of unfinished attempts at the job below a root."""
    return f"attempts#{root_uri}"


def tensor_object_pattern(bucket_names: list[str]) -> dict[str, Any]:
    """Return the event pattern of the objects that make an evaluator look again at a job.

    Args:
        bucket_names: The watched buckets; CloudFormation tokens are passed through.
    """
    return {
        "source": ["aws.s3"],
        "detail-type": ["Object Created"],
        "detail": {
            "bucket": {"name": bucket_names},
            "object": {"key": [{"wildcard": "*/index/*.json"}, {"suffix": "/training_job_end.ts"}]},
        },
    }


def issues_found_pattern() -> dict[str, Any]:
    """Return the event pattern of findings, native and ours, on jobs that still run."""
    return {
        "source": [NATIVE_SOURCE, STATUS_SOURCE],
        "detail-type": [STATUS_DETAIL_TYPE],
        "detail": {
            "TrainingJobStatus": ["InProgress"],
            "DebugRuleEvaluationStatuses": {"RuleEvaluationStatus": ["IssuesFound"]},
        },
    }
