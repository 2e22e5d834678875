"""A rule's result as a file beside the tensors: where it lies, and what it says.

It lies where the original's rule jobs left their output, and says what the status event says, so
that anyone who may read a job's tensors knows its verdicts, without a table and without events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from hook_layer.format.errors import FormatError
from hook_layer.format.json_document import Document, load_object
from rule_runtime.engine.outcome import RuleStatus

__all__ = [
    "MAX_RESULT_BYTES",
    "RESULTS_PREFIX",
    "ResultFileError",
    "RuleResult",
    "parse_result",
    "result_place",
]

MAX_RESULT_BYTES: Final = 64 << 10
"""Longest result; what of it comes from files is cut off well before."""
RESULTS_PREFIX: Final = "rule-output/"

_TENSORS: Final = "debug-output/"
_FILE: Final = "status.json"
_SCHEMA_VERSION: Final = 1
_STATUSES: Final = "DebugRuleEvaluationStatuses"


class ResultFileError(FormatError):
    """A file that is no result of a rule."""


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """Content of a result.

    Attributes:
        training_job_name: Name of the job.
        run_id: The run that was judged; empty for files of the original client.
        root_uri: The trial's root.
        rule: Configuration name of the rule.
        status: Its status.
        details: Its `StatusDetails`.
        changed_at_ms: When it came to this status, milliseconds since the epoch.
        training_job_arn: ARN of the job of SageMaker, where known.
        evidence: What a finding rests on, as JSON.
    """

    training_job_name: str
    run_id: str
    root_uri: str
    rule: str
    status: RuleStatus
    details: str
    changed_at_ms: int
    training_job_arn: str | None = None
    evidence: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the file's content, which is the detail of the status event, too.

        Keys whose value is not known (`TrainingJobArn`, `Evidence`) are absent, as in SageMaker's
        events.
        """
        content: dict[str, Any] = {
            "SchemaVersion": _SCHEMA_VERSION,
            "TrainingJobName": self.training_job_name,
            "RunId": self.run_id,
            "TrainingJobStatus": "InProgress",
            "DebugOutputUri": self.root_uri,
            _STATUSES: [
                {
                    "RuleConfigurationName": self.rule,
                    "RuleEvaluationStatus": self.status.value,
                    "LastModifiedTime": self.changed_at_ms,
                    "StatusDetails": self.details,
                }
            ],
        }
        if self.training_job_arn is not None:
            content["TrainingJobArn"] = self.training_job_arn
        if self.evidence is not None:
            content["Evidence"] = dict(self.evidence)
        return content


def result_place(root_uri: str, rule_configuration_name: str) -> tuple[str, str]:
    """Return the folder of a job, and the key of a rule's result below it.

    Args:
        root_uri: The trial's root; its last part `debug-output` is left off, as in the original's
            layout, and other roots are the job's folder themselves.
        rule_configuration_name: The rule; what cannot be part of a name is escaped.
    """
    folder = root_uri
    if root_uri.endswith(f"/{_TENSORS}"):
        folder = root_uri.removesuffix(_TENSORS)
    return folder, f"{RESULTS_PREFIX}{quote(rule_configuration_name, safe=' ')}/{_FILE}"


def parse_result(data: bytes, *, file: str) -> RuleResult:
    """Parse a result.

    Raises:
        ResultFileError: The file is none.
    """
    content = load_object(data, file=file, error=ResultFileError, max_bytes=MAX_RESULT_BYTES)
    document = Document(file, ResultFileError)
    statuses = document.items(content.get(_STATUSES), _STATUSES)
    if len(statuses) != 1:
        document.fail(f"{_STATUSES}: one status expected, {len(statuses)} found")
    status = document.members(statuses[0], f"{_STATUSES}[0]")
    name = document.text(status.get("RuleEvaluationStatus"), "RuleEvaluationStatus")
    if name not in {each.value for each in RuleStatus}:
        document.fail(f"RuleEvaluationStatus: {name[:60]!r} is none")
    evidence = content.get("Evidence")
    return RuleResult(
        training_job_name=document.text(content.get("TrainingJobName"), "TrainingJobName"),
        run_id=document.text(content.get("RunId"), "RunId"),
        root_uri=document.text(content.get("DebugOutputUri"), "DebugOutputUri"),
        rule=document.text(status.get("RuleConfigurationName"), "RuleConfigurationName"),
        status=RuleStatus(name),
        details=document.text(status.get("StatusDetails"), "StatusDetails"),
        changed_at_ms=document.count(status.get("LastModifiedTime"), "LastModifiedTime"),
        training_job_arn=document.optional_text(content.get("TrainingJobArn"), "TrainingJobArn"),
        evidence=None if evidence is None else document.members(evidence, "Evidence"),
    )
