"""What the function is asked: a training job's state change event, whole or only its detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from lambdas.contracts.events import NATIVE_SOURCE
from rule_runtime.evaluation.outcome import RuleStatus

__all__ = ["Finding", "Origin", "StopRequest", "parse_request"]

_MAX_NAME: Final = 256
_MAX_URI: Final = 1024
_MAX_DETAILS: Final = 4096


class Origin(Enum):
    """Who says that a rule found an issue."""

    NATIVE = "SageMaker, whose events nobody can forge"
    DIRECT = "somebody who may invoke the function"
    EVENT_BUS = "whoever may put events on the bus: to be confirmed"


@dataclass(frozen=True)
class Finding:
    """A rule that found an issue, as the event tells it."""

    rule: str
    details: str


@dataclass(frozen=True)
class StopRequest:
    """A job in which rules found issues.

    Attributes:
        training_job_name: Name of the job; empty when the event has none.
        findings: The rules that found issues; empty when none did.
        origin: Who tells it.
        root_uri: The trial's root that the event names; it only serves to look the job up.
        run_id: The run that the event names.
    """

    training_job_name: str
    findings: tuple[Finding, ...]
    origin: Origin
    root_uri: str | None = None
    run_id: str | None = None


def parse_request(event: object) -> StopRequest:
    """Return what an event asks for; no findings if it is none of the expected shape.

    Args:
        event: An EventBridge event, or only its detail; whatever JSON it is, nothing is raised: an
            error would bring the same event back twice, and then to the dead letters.
    """
    whole = event if isinstance(event, Mapping) else {}
    detail = whole.get("detail", whole)
    if not isinstance(detail, Mapping):
        detail = {}
    source = whole.get("source")
    is_known = source is None or isinstance(source, str)
    return StopRequest(
        training_job_name=_text(detail.get("TrainingJobName"), _MAX_NAME) or "",
        findings=_findings(detail.get("DebugRuleEvaluationStatuses")),
        origin=_ORIGINS.get(source, Origin.EVENT_BUS) if is_known else Origin.EVENT_BUS,
        root_uri=_text(detail.get("DebugOutputUri"), _MAX_URI),
        run_id=_text(detail.get("RunId"), _MAX_NAME),
    )


_ORIGINS: Final[Mapping[object, Origin]] = {None: Origin.DIRECT, NATIVE_SOURCE: Origin.NATIVE}


def _findings(statuses: Any) -> tuple[Finding, ...]:
    if not isinstance(statuses, list):
        return ()
    return tuple(
        Finding(
            rule=_text(status.get("RuleConfigurationName"), _MAX_NAME) or "",
            details=_text(status.get("StatusDetails"), _MAX_DETAILS) or "",
        )
        for status in statuses
        if isinstance(status, Mapping)
        and status.get("RuleEvaluationStatus") == RuleStatus.ISSUES_FOUND
    )


def _text(value: object, max_length: int) -> str | None:
    """Return a text that can be part of a key or of a file."""
    if not isinstance(value, str) or len(value) > max_length:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        return None
    return value
