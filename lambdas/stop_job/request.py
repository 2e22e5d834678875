"""What the function is asked: a training job's state change event, whole or only its detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from lambdas.shared.native_events import is_native_event
from rule_runtime.engine.outcome import RuleStatus

__all__ = ["Finding", "Origin", "StopRequest", "parse_request"]

_MAX_NAME: Final = 256
_MAX_URI: Final = 1024
_MAX_DETAILS: Final = 4096
_MAX_STATUSES: Final = 50
"""Statuses that are looked at; a job of SageMaker has at most 20 rules, our events tell of one."""


class Origin(Enum):
    """Who says that a rule found an issue."""

    NATIVE = "SageMaker, whose events nobody can forge"
    DIRECT = "somebody who may invoke the function"
    EVENT_BUS = "anyone who may put events on the bus: needs confirmation"


@dataclass(frozen=True)
class Finding:
    """A rule that found an issue, as the event reports it."""

    rule: str
    details: str


@dataclass(frozen=True)
class StopRequest:
    """A job in which rules found issues.

    Attributes:
        training_job_name: Name of the job; empty when the event has none.
        findings: The rules that found issues; empty when none did.
        origin: Who reports it.
        root_uri: The trial's root that the event names; it only serves to look the job up.
        run_id: The run that the event names.
    """

    training_job_name: str
    findings: tuple[Finding, ...]
    origin: Origin
    root_uri: str | None = None
    run_id: str | None = None


def parse_request(event: object, context: object = None) -> StopRequest:
    """Return what an event asks for; no findings if it is none of the expected shape.

    Args:
        event: An EventBridge event, or only its detail; whatever JSON it is, nothing is raised: an
            error would bring the same event back twice, and then to the dead letters.
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
    """Return the findings, one a rule; each may cost a look into the table."""
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
    """Return a text that can be part of a key or of a file."""
    if not isinstance(value, str) or len(value) > max_length:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        return None
    return value
