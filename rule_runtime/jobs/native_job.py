"""Reads a job's description from SageMaker, with statuses of SageMaker Debugger's own rules."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.jobs.aws import AwsRequestError

if TYPE_CHECKING:
    from rule_runtime.jobs.aws import Aws

__all__ = [
    "PROCESSING_LOG_GROUP",
    "NotRequestedError",
    "described_training_job",
    "is_terminal",
    "native_statuses",
    "processing_log_stream",
    "stop_training_job",
]

logger = logging.getLogger("stepwatch")

PROCESSING_LOG_GROUP: Final = "/aws/sagemaker/ProcessingJobs"
"""Log group of the rules of SageMaker Debugger."""

_NO_SUCH_JOB: Final = "ValidationException"
_NO_REGION: Final = "NoRegionError"
_NO_CREDENTIALS: Final = ("NoCredentialsError", "PartialCredentialsError")
_ENDED: Final = "The request was rejected because the training job is in status"
_TERMINAL: Final = frozenset(("Completed", "Failed", "Stopped"))
_NAME_CHARACTERS: Final = 26
_ARN_CHARACTERS: Final = 8


class NotRequestedError(ValueError):
    """SageMaker was not asked about a job: Region, credentials or permission is missing."""


def described_training_job(
    aws: Aws, name: str, *, is_needed: bool = False
) -> Mapping[str, Any] | None:
    """Return the response of DescribeTrainingJob; None if SageMaker does not run the job.

    It also returns None without credentials or permission, which jobs of other platforms do not
    need.

    Args:
        aws: The account and Region.
        name: Name of the job.
        is_needed: Whether only SageMaker knows the job.

    Raises:
        NotRequestedError: The response is needed, and Region, credentials or permission is missing.
        AwsRequestError: SageMaker does not answer.
    """
    try:
        answer: dict[str, Any] = aws.call(
            "sagemaker", "describe_training_job", TrainingJobName=name
        )
    except AwsRequestError as error:
        if is_needed and (why := _why_not_requested(aws, error)):
            raise NotRequestedError(
                f"whether SageMaker runs {name!r} is not known: {why}"
            ) from error
        if error.is_forbidden:
            logger.warning(
                "whether SageMaker runs %s is not known: allow sagemaker:DescribeTrainingJob (%s)",
                name,
                error,
            )
            return None
        if error.code in (_NO_SUCH_JOB, _NO_REGION):
            return None
        raise
    answer.pop("ResponseMetadata", None)
    return answer


def _why_not_requested(aws: Aws, error: AwsRequestError) -> str:
    """Return why SageMaker was not asked, and what to do; empty if it was asked."""
    if error.is_forbidden:
        return f"allow sagemaker:DescribeTrainingJob, or give output_path ({error})"
    if error.code != _NO_REGION and error.code not in _NO_CREDENTIALS:
        return ""
    has_region, has_credentials = aws.region is not None, aws.has_credentials
    missing = {
        "neither a Region nor credentials are": not (has_region or has_credentials),
        "no Region is": not has_region,
        "no credentials are": True,
    }
    what = next(text for text, is_so in missing.items() if is_so)
    variables = [] if has_region else ["AWS_REGION"]
    if not has_credentials:
        variables.append("AWS_PROFILE (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)")
    return (
        f"{what} configured; set {' and '.join(variables)}, or give a boto3 session; for a job "
        "that runs elsewhere give output_path"
    )


def is_terminal(described: Mapping[str, Any] | None) -> bool:
    """Return whether a job has ended, from SageMaker's description."""
    return described is not None and described.get("TrainingJobStatus") in _TERMINAL


def native_statuses(described: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the statuses of the rules of SageMaker Debugger, in configured order."""
    if described is None:
        return []
    statuses = {
        status["RuleConfigurationName"]: dict(status)
        for status in described.get("DebugRuleEvaluationStatuses") or ()
    }
    begun = described.get("CreationTime")
    for rule in described.get("DebugRuleConfigurations") or ():
        name = rule["RuleConfigurationName"]
        status = statuses.pop(name, None) or {
            "RuleConfigurationName": name,
            "RuleEvaluationStatus": "InProgress",
            **({} if begun is None else {"LastModifiedTime": begun}),
        }
        statuses[name] = status
    return list(statuses.values())


def processing_log_stream(training_job_name: str, status: Mapping[str, Any]) -> str:
    """Return the prefix of the log stream of a rule of SageMaker Debugger."""
    rule, arn = status["RuleConfigurationName"], status.get("RuleEvaluationJobArn", "")
    return "-".join(
        (
            training_job_name[:_NAME_CHARACTERS],
            rule[:_NAME_CHARACTERS],
            arn[-_ARN_CHARACTERS:],
        )
    )


def stop_training_job(aws: Aws, name: str) -> None:
    """Call StopTrainingJob; an ended job counts as stopped.

    Raises:
        AwsRequestError: SageMaker refuses for another reason.
    """
    try:
        aws.call("sagemaker", "stop_training_job", TrainingJobName=name)
    except AwsRequestError as error:
        if _ENDED not in str(error):
            raise
