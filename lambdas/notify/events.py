"""Parses the function's events: changed statuses of rules, and jobs that do not end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lambdas.contracts.events import STATUS_SOURCE, STOP_OVERDUE_DETAIL_TYPE
from lambdas.shared.event_bus import is_native_event
from rule_runtime.engine.outcome import RuleStatus

__all__ = ["OverdueStop", "StatusChange", "parse_event"]

_MAX_NAME: Final = 256
_MAX_URI: Final = 1024
_MAX_DETAILS: Final = 4096
_MAX_STATUSES: Final = 50
"""Maximum parsed statuses; SageMaker jobs have at most 20 rules, Stepwatch's events one status."""


@dataclass(frozen=True)
class StatusChange:
    """A rule's status in an event.

    Attributes:
        training_job_name: Name of the job.
        rule: Configuration name of the rule.
        status: Its status.
        details: `StatusDetails` of a native event; empty for Stepwatch's untrusted events.
        changed_at: Time of the change in a native event.
        root_uri: The trial's root in a Stepwatch event; None for native events.
        run_id: The run, likewise.
    """

    training_job_name: str
    rule: str
    status: RuleStatus
    details: str = ""
    changed_at: str = ""
    root_uri: str | None = None
    run_id: str = ""


@dataclass(frozen=True)
class OverdueStop:
    """A job that reportedly continues after a stop request."""

    training_job_name: str
    root_uri: str
    run_id: str


def parse_event(event: object, context: object = None) -> list[StatusChange | OverdueStop]:
    """Parse an event; return an empty list if its format is unexpected.

    Args:
        event: Any JSON. No error is raised, because it would deliver the event twice more, and then
            to the dead-letter queue.
        context: Lambda's context. Native events must come from its account.
    """
    whole = event if isinstance(event, Mapping) else {}
    detail, is_native = whole.get("detail"), is_native_event(whole, context)
    # An event without a source is untrusted: only SageMaker's own events are trusted.
    is_ours = not is_native and whole.get("source") == STATUS_SOURCE
    if not isinstance(detail, Mapping) or not (is_native or is_ours):
        return []
    name = _text(detail.get("TrainingJobName"), _MAX_NAME)
    if not name:
        return []
    if is_ours and whole.get("detail-type") == STOP_OVERDUE_DETAIL_TYPE:
        root_uri = _text(detail.get("DebugOutputUri"), _MAX_URI)
        return [OverdueStop(name, root_uri, _text(detail.get("RunId"), _MAX_NAME))]
    return list(_changes(name, detail, is_native=is_native).values())


def _changes(
    name: str, detail: Mapping[Any, Any], *, is_native: bool
) -> dict[tuple[str, str], StatusChange]:
    root_uri = _text(detail.get("DebugOutputUri"), _MAX_URI)
    run_id = _text(detail.get("RunId"), _MAX_NAME)
    statuses = detail.get("DebugRuleEvaluationStatuses")
    found: dict[tuple[str, str], StatusChange] = {}
    for entry in statuses[:_MAX_STATUSES] if isinstance(statuses, list) else []:
        if not isinstance(entry, Mapping):
            continue
        rule = _text(entry.get("RuleConfigurationName"), _MAX_NAME)
        status = _STATUSES.get(_text(entry.get("RuleEvaluationStatus"), _MAX_NAME))
        if not rule or status is None:
            continue
        if is_native:
            details = _text(entry.get("StatusDetails"), _MAX_DETAILS)
            change = StatusChange(name, rule, status, details, _time(entry))
        else:
            change = StatusChange(name, rule, status, root_uri=root_uri, run_id=run_id)
        found[rule, status.value] = change
    return found


_STATUSES: Final[Mapping[str, RuleStatus]] = {status.value: status for status in RuleStatus}


def _time(entry: Mapping[Any, Any]) -> str:
    value = entry.get("LastModifiedTime")
    is_time = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    return _text(str(value), _MAX_NAME) if is_time else ""


def _text(value: object, max_length: int) -> str:
    """Return a string that can be part of a key or of a message; otherwise an empty one."""
    if not isinstance(value, str) or len(value) > max_length:
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can encode
        return ""
    return value
