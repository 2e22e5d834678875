"""What the function is asked: a training job's state change event, whole or only its detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from lambdas.contracts.events import NATIVE_SOURCE
from rule_runtime.evaluation.outcome import RuleStatus

__all__ = ["Finding", "Origin", "StopRequest", "StopRequestError", "parse_request"]


class Origin(Enum):
    """Who says that a rule found an issue."""

    NATIVE = "SageMaker, whose events nobody can forge"
    DIRECT = "somebody who may invoke the function"
    EVENT_BUS = "whoever may put events on the bus: to be confirmed"


class StopRequestError(ValueError):
    """An event that names a finding but not the job that it was found in, or is no event."""


@dataclass(frozen=True)
class Finding:
    """A rule that found an issue, as the event tells it."""

    rule: str
    details: str


@dataclass(frozen=True)
class StopRequest:
    """A job in which rules found issues.

    Attributes:
        training_job_name: Name of the job.
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
    """Return what an event asks for.

    Args:
        event: An EventBridge event, or only its detail.

    Raises:
        StopRequestError: The event is no object, or has a finding but no job.
    """
    if not isinstance(event, Mapping):
        raise StopRequestError(
            f"an event or its detail expected, {type(event).__name__} found: test with a "
            '"SageMaker Training Job State Change" event'
        )
    detail = event.get("detail", event)
    if not isinstance(detail, Mapping):
        raise StopRequestError(f"the event's detail is no object: {detail!r:.80}")
    findings = _findings(detail.get("DebugRuleEvaluationStatuses"))
    name = detail.get("TrainingJobName")
    if findings and not (isinstance(name, str) and name):
        raise StopRequestError(f"the event has a finding but TrainingJobName is {name!r:.80}")
    origin = _ORIGINS.get(event.get("source"), Origin.EVENT_BUS)
    return StopRequest(
        training_job_name=name if isinstance(name, str) else "",
        findings=findings,
        origin=origin,
        root_uri=_optional_text(detail.get("DebugOutputUri")),
        run_id=_optional_text(detail.get("RunId")),
    )


_ORIGINS: Final[Mapping[object, Origin]] = {None: Origin.DIRECT, NATIVE_SOURCE: Origin.NATIVE}


def _findings(statuses: Any) -> tuple[Finding, ...]:
    if not isinstance(statuses, list):
        return ()
    return tuple(
        Finding(
            rule=str(status.get("RuleConfigurationName", "")),
            details=str(status.get("StatusDetails") or ""),
        )
        for status in statuses
        if isinstance(status, Mapping)
        and status.get("RuleEvaluationStatus") == RuleStatus.ISSUES_FOUND
    )


def _optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
