"""Parses the function's requests: a training job's state change event, or only its detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from lambdas.shared.event_bus import is_native_event
from rule_runtime.engine.outcome import RuleStatus

__all__ = ["Finding", "Origin", "StopRequest", "parse_request"]

_MAX_NAME: Final = 256
_MAX_URI: Final = 1024
_MAX_DETAILS: Final = 4096
_MAX_STATUSES: Final = 50
"""Maximum parsed statuses; SageMaker jobs have at most 20 rules, Stepwatch's events one status."""


class Origin(Enum):
    """Sender of a finding."""

    NATIVE = "SageMaker, whose events nobody can forge"
    DIRECT = "somebody who may invoke the function"
    EVENT_BUS = "anyone who may put events on the bus: needs confirmation"


@dataclass(frozen=True)
class Finding:
    """A finding in an event."""

    rule: str
    details: str


@dataclass(frozen=True)
class StopRequest:
    """A job with findings.

    Attributes:
        training_job_name: Name of the job; empty if the event has none.
        findings: The rules that found issues; empty if none did.
        origin: Sender of the findings.
        root_uri: The trial's root in the event; only used to find the job.
        run_id: The run in the event.
    """

    training_job_name: str
    findings: tuple[Finding, ...]
    origin: Origin
    root_uri: str | None = None
    run_id: str | None = None


def parse_request(event: object, context: object = None) -> StopRequest:
    """Parse an event; return no findings if its format is unexpected.

    Args:
        event: Any JSON: an EventBridge event, or only its detail. No error is raised, because it
            would deliver the event twice more, and then to the dead-letter queue.
        context: Lambda's context. Native events must come from its account.
    """
    whole = event if isinstance(event, Mapping) else {}
    detail = whole.get("detail", whole)
    if not isinstance(detail, Mapping):
        detail = {}
    origin = Origin.DIRECT if whole.get("source") is None else Origin.EVENT_BUS
    if is_native_event(whole, context):
        origin = Origin.NATIVE
    return StopRequest(
        training_job_name=_text(detail.get("TrainingJobName"), _MAX_NAME) or "",
        findings=_findings(detail.get("DebugRuleEvaluationStatuses")),
        origin=origin,
        root_uri=_text(detail.get("DebugOutputUri"), _MAX_URI),
        run_id=_text(detail.get("RunId"), _MAX_NAME),
    )


def _findings(statuses: Any) -> tuple[Finding, ...]:
    """Return the findings, one per rule; each may cost a read of the table."""
    if not isinstance(statuses, list):
        return ()
    found: dict[str, Finding] = {}
    for status in statuses[:_MAX_STATUSES]:
        if (
            isinstance(status, Mapping)
            and status.get("RuleEvaluationStatus") == RuleStatus.ISSUES_FOUND
        ):
            rule = _text(status.get("RuleConfigurationName"), _MAX_NAME) or ""
            details = _text(status.get("StatusDetails"), _MAX_DETAILS) or ""
            found.setdefault(rule, Finding(rule, details))
    return tuple(found.values())


def _text(value: object, max_length: int) -> str | None:
    """Return a string that can be part of a key or of a file; otherwise None."""
    if not isinstance(value, str) or len(value) > max_length:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can encode
        return None
    return value
