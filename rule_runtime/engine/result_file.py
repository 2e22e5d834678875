"""Stores a rule's result beside the tensors, where SageMaker Debugger stored its output.

Users who can read a job's tensors can read its verdicts, without a table or events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from hook_layer.format.errors import FormatError
from hook_layer.format.json_document import load_object
from rule_runtime.engine.json_codec import JsonError, JsonRecord
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
"""Maximum size of a result; texts from files are truncated well before."""
RESULTS_PREFIX: Final = "rule-output/"

_TENSORS: Final = "debug-output/"
_FILE: Final = "status.json"
_STATUSES: Final = "DebugRuleEvaluationStatuses"
_STATUS: Final = [
    "RuleConfigurationName",
    "RuleEvaluationStatus",
    "LastModifiedTime",
    "StatusDetails",
]
"""Members of the only object in `DebugRuleEvaluationStatuses`."""


class ResultFileError(FormatError):
    """A file that is not a rule's result."""


@dataclass(frozen=True, kw_only=True)
class RuleResult(JsonRecord):
    """The content of a result file, and the detail of the status event.

    Members that are None are omitted, as in SageMaker's events.

    Attributes:
        run_id: The evaluated run; empty for files of the original client.
        root_uri: The trial's root.
        rule: Configuration name of the rule.
        changed_at_ms: When the status changed, milliseconds since the epoch.
        training_job_arn: ARN of the SageMaker job, if known.
        evidence: The evidence of a finding, as JSON.
        advice: The rule's advice, if it has any.
    """

    training_job_name: str = field(metadata={"json": "TrainingJobName"})
    run_id: str = field(metadata={"json": "RunId"})
    root_uri: str = field(metadata={"json": "DebugOutputUri"})
    rule: str = field(metadata={"json": "RuleConfigurationName"})
    status: RuleStatus = field(metadata={"json": "RuleEvaluationStatus"})
    details: str = field(metadata={"json": "StatusDetails"})
    changed_at_ms: int = field(metadata={"json": "LastModifiedTime"})
    training_job_arn: str | None = field(default=None, metadata={"json": "TrainingJobArn"})
    evidence: Mapping[str, Any] | None = field(default=None, metadata={"json": "Evidence"})
    advice: str | None = field(default=None, metadata={"json": "Advice"})

    def to_json(self) -> dict[str, Any]:
        """Return the file's content."""
        content = super().to_json()
        status = {name: content.pop(name) for name in _STATUS}
        content |= {"SchemaVersion": 1, "TrainingJobStatus": "InProgress", _STATUSES: [status]}
        return content


def result_place(root_uri: str, rule_configuration_name: str) -> tuple[str, str]:
    """Return the folder of a job, and the key of a rule's result in it.

    Args:
        root_uri: The trial's root. Its last part `debug-output` is removed, as in SageMaker's
            layout; any other root is the job's folder.
        rule_configuration_name: The rule; characters that are invalid in names are escaped.
    """
    folder = root_uri
    if root_uri.endswith(f"/{_TENSORS}"):
        folder = root_uri.removesuffix(_TENSORS)
    return folder, f"{RESULTS_PREFIX}{quote(rule_configuration_name, safe=' ')}/{_FILE}"


def parse_result(data: bytes, *, file: str) -> RuleResult:
    """Parse a result.

    Raises:
        ResultFileError: The file is not a result.
    """
    content = load_object(data, file=file, error=ResultFileError, max_bytes=MAX_RESULT_BYTES)
    statuses = content.get(_STATUSES)
    if not isinstance(statuses, list) or [type(each) for each in statuses] != [dict]:
        raise ResultFileError(f"{_STATUSES} must be a list of one object", file=file)
    try:
        return RuleResult.from_json({**content, **statuses[0]})
    except JsonError as error:
        raise ResultFileError(str(error), file=file) from None
