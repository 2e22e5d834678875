"""Formats the statuses of a job's rules like SageMaker's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.engine.outcome import MAX_STATUS_DETAILS_LENGTH, RuleStatus
from rule_runtime.engine.result_file import result_place
from rule_runtime.jobs.console_links import partition_of
from rule_runtime.jobs.native_job import is_terminal

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile
    from rule_runtime.engine.result_file import RuleResult

__all__ = ["RuleSummary", "failure_of", "is_final", "moment_of_start"]

_FINAL: Final = frozenset(
    status.value for status in RuleStatus if status.is_final or status is RuleStatus.STOPPED
)
_S3: Final = "s3://"


@dataclass(frozen=True)
class RuleSummary:
    """Converts results of rules to members of a summary.

    Attributes:
        root_uri: The trial's root.
        region: Region of the job, for the partition of ARNs.
        began_at: Time when the job was submitted or began.
        failure: Why rules without a result cannot get one any more; empty if they still can.
        obstacle: Why they get none at present; empty if they may.
    """

    root_uri: str
    region: str | None
    began_at: datetime
    failure: str = ""
    obstacle: str = ""

    def of(self, rule_configuration_name: str, result: RuleResult | None) -> dict[str, Any]:
        """Return the member of one rule.

        Args:
            rule_configuration_name: The rule.
            result: Its result; None if there is none yet.
        """
        if result is None:
            status, details, changed_at = self._without_result(rule_configuration_name)
        else:
            status, details = result.status, result.details
            changed_at = datetime.fromtimestamp(result.changed_at_ms / 1000, timezone.utc)
        return {
            "RuleConfigurationName": rule_configuration_name,
            "RuleEvaluationJobArn": self._arn(rule_configuration_name),
            "RuleEvaluationStatus": status.value,
            "StatusDetails": _line(details),
            "LastModifiedTime": changed_at,
        }

    def _without_result(self, rule: str) -> tuple[RuleStatus, str, datetime]:
        if not self.failure:
            details = self.obstacle or "not evaluated to an end yet"
            return RuleStatus.IN_PROGRESS, details, self.began_at
        details = (
            "InsufficientInformationForRuleInvocation: Insufficient information to invoke rule "
            f"{rule}: {self.failure}"
        )
        return RuleStatus.ERROR, details, self.began_at

    def _arn(self, rule: str) -> str:
        folder, key = result_place(self.root_uri, rule)
        if not folder.startswith(_S3):
            return folder + key
        partition = partition_of(self.region or "")
        return f"arn:{partition}:s3:::{folder.removeprefix(_S3)}{key}"


def failure_of(job: JobFile | None, described: Mapping[str, Any] | None, root_uri: str) -> str:
    """Return why rules without a verdict cannot get one any more; empty if they still can.

    Args:
        job: The run's `job.json`; None before it begins.
        described: SageMaker's description of the job; None if it runs elsewhere.
        root_uri: The trial's root.
    """
    if job is not None or described is None or not is_terminal(described):
        return ""
    return (
        f"the job ended as {described['TrainingJobStatus']} and its hook wrote nothing to "
        f"{root_uri}; see the job's log, and whether its role may write there"
    )


def moment_of_start(
    job: JobFile | None, described: Mapping[str, Any] | None, otherwise: datetime
) -> datetime:
    """Return the time when a job began, or was submitted.

    Args:
        job: The run's `job.json`; None before it begins.
        described: SageMaker's description of the job; None if it runs elsewhere.
        otherwise: Default time.
    """
    if job is None:
        begun = (described or {}).get("CreationTime")
        return begun if isinstance(begun, datetime) else otherwise
    try:
        moment = datetime.fromisoformat(job.started_at.replace("Z", "+00:00"))
    except ValueError:
        return otherwise
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def is_final(member: Mapping[str, Any]) -> bool:
    """Return whether a rule's status is final."""
    return member["RuleEvaluationStatus"] in _FINAL


def _line(details: str) -> str:
    """Return details that end in a newline, as in the original, within the API's limit."""
    return details.rstrip("\n")[: MAX_STATUS_DETAILS_LENGTH - 1] + "\n"
