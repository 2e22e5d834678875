"""`job.json`, which identifies a run, and `stop.json`, which requests its stop."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from hook_layer.format.errors import JobFileError
from hook_layer.format.json_document import Document, load_object

__all__ = [
    "MAX_JOB_FILE_BYTES",
    "JobFile",
    "StopFile",
    "new_run_id",
    "parse_job_file",
    "parse_stop_file",
]

MAX_JOB_FILE_BYTES: Final = 1 << 20
"""Maximum size of a `job.json` or `stop.json`."""

_SCHEMA_VERSION: Final = 1
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
_TIME_DIGITS, _RANDOM_DIGITS, _DIGIT_BITS = 10, 16, 5


@dataclass(frozen=True)
class JobFile:
    """Content of `job.json`.

    Attributes:
        run_id: Id of this run of the job; new whenever training starts.
        platform: `sagemaker`, or the name of another platform.
        started_at: Start of the run, ISO 8601 in UTC.
        training_job_arn: ARN of the job, if the platform provides one.
        debug_rule_configurations: The job's rules, as in CreateTrainingJob; None to use the
            deployed rules with their own parameters.
        actions: Actions on a finding, in the original's format.
        opt_out_of_stop: True if the job must never be stopped.
    """

    training_job_name: str
    run_id: str
    platform: str
    started_at: str
    training_job_arn: str | None = None
    debug_rule_configurations: tuple[dict[str, Any], ...] | None = None
    actions: tuple[dict[str, Any], ...] = ()
    opt_out_of_stop: bool = False

    def encode(self) -> bytes:
        """Return the file's bytes."""
        content: dict[str, Any] = {
            "SchemaVersion": _SCHEMA_VERSION,
            "TrainingJobName": self.training_job_name,
            "RunId": self.run_id,
            "Platform": self.platform,
            "StartedAt": self.started_at,
        }
        if self.training_job_arn is not None:
            content["TrainingJobArn"] = self.training_job_arn
        if self.debug_rule_configurations is not None:
            content["DebugRuleConfigurations"] = list(self.debug_rule_configurations)
        if self.actions:
            content["Actions"] = list(self.actions)
        content["OptOutOfStop"] = self.opt_out_of_stop
        return json.dumps(content).encode()


@dataclass(frozen=True)
class StopFile:
    """Content of `stop.json`.

    Attributes:
        reason: Why the run must stop, one sentence.
        requested_at: Time of the request, ISO 8601 in UTC.
        run_id: The run to stop; None for any run.
    """

    reason: str
    requested_at: str
    run_id: str | None = None
    rule_configuration_name: str | None = None
    evidence: dict[str, Any] | None = None

    def encode(self) -> bytes:
        """Return the file's bytes."""
        content = {
            "SchemaVersion": _SCHEMA_VERSION,
            "RunId": self.run_id,
            "Reason": self.reason,
            "RuleConfigurationName": self.rule_configuration_name,
            "Evidence": self.evidence,
            "RequestedAt": self.requested_at,
        }
        return json.dumps(
            {name: value for name, value in content.items() if value is not None}
        ).encode()


def parse_job_file(data: bytes, *, file: str) -> JobFile:
    """Parse a `job.json`.

    Raises:
        JobFileError: It is not a job file.
    """
    content = load_object(data, file=file, error=JobFileError, max_bytes=MAX_JOB_FILE_BYTES)
    document = Document(file, JobFileError)
    rules = content.get("DebugRuleConfigurations")
    return JobFile(
        training_job_name=document.text(content.get("TrainingJobName"), "TrainingJobName"),
        run_id=document.text(content.get("RunId"), "RunId"),
        platform=document.text(content.get("Platform", "unknown"), "Platform"),
        started_at=document.text(content.get("StartedAt", ""), "StartedAt"),
        training_job_arn=document.optional_text(content.get("TrainingJobArn"), "TrainingJobArn"),
        debug_rule_configurations=(
            None if rules is None else _objects(rules, "DebugRuleConfigurations", document)
        ),
        actions=_objects(content.get("Actions", []), "Actions", document),
        opt_out_of_stop=document.flag(content.get("OptOutOfStop", False), "OptOutOfStop"),
    )


def parse_stop_file(data: bytes, *, file: str) -> StopFile:
    """Parse a `stop.json`.

    Raises:
        JobFileError: It is not a stop file.
    """
    content = load_object(data, file=file, error=JobFileError, max_bytes=MAX_JOB_FILE_BYTES)
    document = Document(file, JobFileError)
    evidence = content.get("Evidence")
    return StopFile(
        reason=document.text(content.get("Reason", "no reason given"), "Reason"),
        requested_at=document.text(content.get("RequestedAt", ""), "RequestedAt"),
        run_id=document.optional_text(content.get("RunId"), "RunId"),
        rule_configuration_name=document.optional_text(
            content.get("RuleConfigurationName"), "RuleConfigurationName"
        ),
        evidence=None if evidence is None else document.members(evidence, "Evidence"),
    )


def new_run_id() -> str:
    """Return a new id of 26 characters that sorts by creation time (a ULID)."""
    number = (time.time_ns() // 1_000_000) << (_RANDOM_DIGITS * _DIGIT_BITS)
    number |= secrets.randbits(_RANDOM_DIGITS * _DIGIT_BITS)
    digits = range(_TIME_DIGITS + _RANDOM_DIGITS - 1, -1, -1)
    return "".join(_ALPHABET[number >> (_DIGIT_BITS * digit) & 31] for digit in digits)


def _objects(value: object, path: str, document: Document) -> tuple[dict[str, Any], ...]:
    items = document.items(value, path)
    return tuple(document.members(item, f"{path}[{i}]") for i, item in enumerate(items))
