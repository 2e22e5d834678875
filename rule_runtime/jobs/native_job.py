"""A job as SageMaker describes it, with the statuses of its own Debugger's rules."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.jobs.aws import AwsRequestError

if TYPE_CHECKING:
    from rule_runtime.jobs.aws import Aws

__all__ = [
    "PROCESSING_LOG_GROUP",
    "described_training_job",
    "is_terminal",
    "native_statuses",
    "processing_log_stream",
    "stop_training_job",
]

logger = logging.getLogger("stepwatch")

PROCESSING_LOG_GROUP: Final = "/aws/sagemaker/ProcessingJobs"
"""Where rules of SageMaker's own Debugger log to."""

_NO_SUCH_JOB: Final = "ValidationException"
_NO_REGION: Final = "NoRegionError"
_ENDED: Final = "The request was rejected because the training job is in status"
_TERMINAL: Final = frozenset(("Completed", "Failed", "Stopped"))
_NAME_CHARACTERS: Final = 26
_ARN_CHARACTERS: Final = 8


def described_training_job(aws: Aws, name: str) -> Mapping[str, Any] | None:
    """Return the answer of DescribeTrainingJob; None for a job that SageMaker does not run.

    It is None, too, where nobody may ask, for a job of another platform needs no such right.

    Args:
        aws: The account and Region.
        name: Name of the job.

    Raises:
        AwsRequestError: SageMaker does not answer.
    """
    try:
        answer: dict[str, Any] = aws.call(
            "sagemaker", "describe_training_job", TrainingJobName=name
        )
    except AwsRequestError as error:
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


def is_terminal(described: Mapping[str, Any] | None) -> bool:
    """Tell whether a job has ended, as SageMaker describes it."""
    return described is not None and described.get("TrainingJobStatus") in _TERMINAL


def native_statuses(described: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the statuses of the rules of SageMaker's own Debugger, in configured order.

    Args:
        described: The answer of DescribeTrainingJob.
    """
    if described is None:
        return []
    told = {
        status["RuleConfigurationName"]: dict(status)
        for status in described.get("DebugRuleEvaluationStatuses") or ()
    }
    begun = described.get("CreationTime")
    for rule in described.get("DebugRuleConfigurations") or ():
        name = rule["RuleConfigurationName"]
        status = told.pop(name, None) or {
            "RuleConfigurationName": name,
            "RuleEvaluationStatus": "InProgress",
            **({} if begun is None else {"LastModifiedTime": begun}),
        }
        told[name] = status
    return list(told.values())


def processing_log_stream(training_job_name: str, status: Mapping[str, Any]) -> str:
    """Return the beginning of the log stream of a rule of SageMaker's own Debugger.

    Args:
        training_job_name: Name of the job.
        status: The rule's status.
    """
    rule, arn = status["RuleConfigurationName"], status.get("RuleEvaluationJobArn", "")
    return "-".join(
        (
            training_job_name[:_NAME_CHARACTERS],
            rule[:_NAME_CHARACTERS],
            arn[-_ARN_CHARACTERS:],
        )
    )


def stop_training_job(aws: Aws, name: str) -> None:
    """Call StopTrainingJob; a job that has ended counts as stopped.

    Args:
        aws: The account and Region.
        name: Name of the job.

    Raises:
        AwsRequestError: SageMaker refuses otherwise.
    """
    try:
        aws.call("sagemaker", "stop_training_job", TrainingJobName=name)
    except AwsRequestError as error:
        if _ENDED not in str(error):
            raise
