"""Parses the function's events: state changes of jobs, and verdicts of rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lambdas.contracts.events import MAX_ROOT_BYTES, STATUS_DETAIL_TYPE, STATUS_SOURCE
from lambdas.shared.event_bus import event_time, is_native_event

__all__ = ["JobEvent", "StatusChangeOfRule", "parse_job_event", "parse_status_change"]

_ENDED: Final = ("Completed", "Failed", "Stopped")
_INTERRUPTED: Final = "Interrupted"
_MAX_NAME: Final = 256


@dataclass(frozen=True)
class JobEvent:
    """A state change of a job.

    Attributes:
        training_job_name: Name of the job.
        has_ended: True if it no longer runs, with any result.
        is_interrupted: True if its spot instances were taken away; it will continue.
        at: Time of the change, seconds since the epoch.
    """

    training_job_name: str
    has_ended: bool
    is_interrupted: bool
    at: float


@dataclass(frozen=True)
class StatusChangeOfRule:
    """The job of a verdict event. The event's statuses are ignored.

    Attributes:
        training_job_name: Name of the job.
        root_uri: The trial's root.
    """

    training_job_name: str
    root_uri: str


def parse_job_event(event: object, context: object = None) -> JobEvent | None:
    """Parse an event; return None if it is not SageMaker's about a training job.

    Events of other sources are not trusted: Stepwatch's have the same type, and only SageMaker can
    send with its source.

    Args:
        event: An EventBridge event; any JSON, no error is raised.
        context: Lambda's context. Events of other accounts and Regions are ignored.
    """
    if not isinstance(event, Mapping) or not is_native_event(event, context):
        return None
    detail = event.get("detail")
    if event.get("detail-type") != STATUS_DETAIL_TYPE or not isinstance(detail, Mapping):
        return None
    name, at = _text(detail.get("TrainingJobName"), _MAX_NAME), event_time(event)
    status = detail.get("TrainingJobStatus")
    if not name or at is None or not isinstance(status, str):
        return None
    has_ended = status in _ENDED
    is_interrupted = not has_ended and detail.get("SecondaryStatus") == _INTERRUPTED
    return JobEvent(name, has_ended, is_interrupted, at)


def parse_status_change(event: object) -> StatusChangeOfRule | None:
    """Return the job of a Stepwatch event; None for other events.

    Args:
        event: An EventBridge event; any JSON, no error is raised.
    """
    if not isinstance(event, Mapping) or event.get("source") != STATUS_SOURCE:
        return None
    detail = event.get("detail")
    if event.get("detail-type") != STATUS_DETAIL_TYPE or not isinstance(detail, Mapping):
        return None
    name = _text(detail.get("TrainingJobName"), _MAX_NAME)
    root_uri = _text(detail.get("DebugOutputUri"), MAX_ROOT_BYTES)
    return StatusChangeOfRule(name, root_uri) if name and root_uri else None


def _text(value: object, max_length: int) -> str:
    return (
        value if isinstance(value, str) and value.isprintable() and len(value) <= max_length else ""
    )
