"""Events between the parts: names, patterns and keys of the state table."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "ACTIVE",
    "ACTIVE_ATTRIBUTE",
    "ACTIVE_INDEX",
    "ACTIVE_INDEX_ATTRIBUTES",
    "CUSTOM_RULES",
    "JOB_RULES",
    "JOB_SUMMARY_DETAIL_TYPE",
    "LIFE_SIGN_RULE",
    "MAX_INDEX_LAG_S",
    "MAX_ROOT_BYTES",
    "NATIVE_SOURCE",
    "REGISTRATION_RULE",
    "SEEN_AT_ATTRIBUTE",
    "STATE_PARTITION_KEY",
    "STATE_SORT_KEY",
    "STATE_TTL_ATTRIBUTE",
    "STATUS_DETAIL_TYPE",
    "STATUS_SCHEMA_VERSION",
    "STATUS_SOURCE",
    "STOP_CONFIRMATION_DETAIL_TYPE",
    "STOP_OVERDUE_DETAIL_TYPE",
    "UPDATED_AT_ATTRIBUTE",
    "WAKE_DETAIL_TYPE",
    "attempts_partition",
    "evaluated_pattern",
    "issues_found_pattern",
    "job_summary_pattern",
    "notable_statuses_pattern",
    "notice_partition",
    "registration_partition",
    "stop_overdue_pattern",
    "stop_partition",
    "tensor_object_pattern",
    "training_job_changed_pattern",
]

STATUS_SOURCE: Final = "stepwatch.debugger"
NATIVE_SOURCE: Final = "aws.sagemaker"
STATUS_DETAIL_TYPE: Final = "SageMaker Training Job State Change"
STATUS_SCHEMA_VERSION: Final = 1
STOP_OVERDUE_DETAIL_TYPE: Final = "Stepwatch Stop Overdue"
"""Reports that a job continues after two stop requests."""
JOB_SUMMARY_DETAIL_TYPE: Final = "Stepwatch Job Summary"
"""Reports the statuses of all rules over a run, and the cause of their findings."""
STOP_CONFIRMATION_DETAIL_TYPE: Final = "Stop Confirmation Due"
"""Makes stop_job check the jobs that it asked to stop."""
WAKE_DETAIL_TYPE: Final = "Evaluation Due"
"""Stepwatch's messages in an evaluator's queue, besides the bucket's events."""

STATE_PARTITION_KEY: Final = "run"
"""State items: `<trial root URI>#<RunId>`; registrations: `job#<TrainingJobName>`; attempts:
`attempts#<trial root URI>`."""
STATE_SORT_KEY: Final = "rule"
STATE_TTL_ATTRIBUTE: Final = "expires_at"
REGISTRATION_RULE: Final = "#registration"
"""Prefix of the sort key of a registration item, before its trial root URI; rule configuration
names never begin with `#`."""
LIFE_SIGN_RULE: Final = "#life-sign"
"""Sort key of SageMaker's latest report on a job, in the partition of its registrations."""

JOB_RULES: Final = "#job-rules"
"""Placeholder for a rule's name: the evaluator of built-in rules without a function of their own,
and the sort key of the item with the states of all its rules. Rule configuration names never begin
with `#`."""
CUSTOM_RULES: Final = "#custom-rules"
"""The same for the evaluator that runs the files in the deployer's bucket of rules."""

MAX_ROOT_BYTES: Final = 900
"""Maximum size of a trial root, bytes: table keys contain it, and are limited to 1,024."""

ACTIVE_ATTRIBUTE: Final = "active"
"""Set on evaluations that are not final, not ended or not announced."""
ACTIVE: Final = "1"
UPDATED_AT_ATTRIBUTE: Final = "updated_at"
"""On evaluations, the sort key of the index of active ones: time when files of the run were last
processed, milliseconds since the epoch. It lags, because moving an entry of the index costs two
writes to one partition."""
SEEN_AT_ATTRIBUTE: Final = "seen_at"
"""The same without a lag."""
MAX_INDEX_LAG_S: Final = 30.0
"""Maximum lag, seconds; half the interval of sweeps, so that no busy run looks silent to them."""
ACTIVE_INDEX: Final = "active-updated_at"
"""The sparse index of the active evaluations, the longest silent first."""
ACTIVE_INDEX_ATTRIBUTES: Final = ("status", "transition", "announced_transition", "ended")
"""Attributes of the index besides the keys of the table and of the index."""


def registration_partition(training_job_name: str) -> str:
    """Return the partition key of a job's registrations."""
    return f"job#{training_job_name}"


def attempts_partition(root_uri: str) -> str:
    """Return the partition key of unfinished attempts at the job below a root."""
    return f"attempts#{root_uri}"


def stop_partition(training_job_name: str) -> str:
    """Return the partition key of the requests to stop a job."""
    return f"stop#{training_job_name}"


def notice_partition(digest: str) -> str:
    """Return the partition key of the record of a sent message, by its digest."""
    return f"notice#{digest}"


def tensor_object_pattern(bucket_names: list[str]) -> dict[str, Any]:
    """Return the event pattern of objects that require an evaluation of a job.

    Args:
        bucket_names: The watched buckets; CloudFormation tokens stay unchanged.
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
    """Return the event pattern of findings, native and Stepwatch's, on running jobs."""
    return {
        "source": [NATIVE_SOURCE, STATUS_SOURCE],
        "detail-type": [STATUS_DETAIL_TYPE],
        "detail": {
            "TrainingJobStatus": ["InProgress"],
            "DebugRuleEvaluationStatuses": {"RuleEvaluationStatus": ["IssuesFound"]},
        },
    }


def evaluated_pattern() -> dict[str, Any]:
    """Return the event pattern of Stepwatch's verdicts."""
    verdicts = ["IssuesFound", "NoIssuesFound", "Error"]
    return {
        "source": [STATUS_SOURCE],
        "detail-type": [STATUS_DETAIL_TYPE],
        "detail": {"DebugRuleEvaluationStatuses": {"RuleEvaluationStatus": verdicts}},
    }


def training_job_changed_pattern() -> dict[str, Any]:
    """Return the event pattern of SageMaker's state changes of training jobs, with any status.

    An ended job has a terminal `TrainingJobStatus`. Interruption and resumption of spot training
    change the `SecondaryStatus` of a job in progress.
    """
    return {"source": [NATIVE_SOURCE], "detail-type": [STATUS_DETAIL_TYPE]}


def notable_statuses_pattern(statuses: list[str]) -> dict[str, Any]:
    """Return the event pattern of rule statuses, native and Stepwatch's, that cause messages.

    Args:
        statuses: The statuses, such as `IssuesFound`.
    """
    return {
        "source": [NATIVE_SOURCE, STATUS_SOURCE],
        "detail-type": [STATUS_DETAIL_TYPE],
        "detail": {"DebugRuleEvaluationStatuses": {"RuleEvaluationStatus": statuses}},
    }


def job_summary_pattern() -> dict[str, Any]:
    """Return the event pattern of the summaries of jobs."""
    return {"source": [STATUS_SOURCE], "detail-type": [JOB_SUMMARY_DETAIL_TYPE]}


def stop_overdue_pattern() -> dict[str, Any]:
    """Return the event pattern of jobs that continue after two stop requests."""
    return {"source": [STATUS_SOURCE], "detail-type": [STOP_OVERDUE_DETAIL_TYPE]}
