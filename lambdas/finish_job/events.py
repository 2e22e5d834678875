"""Reads the events of the function: what became of a job, and that a rule has judged one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lambdas.contracts.events import MAX_ROOT_BYTES, STATUS_DETAIL_TYPE, STATUS_SOURCE
from lambdas.shared.native_events import event_time, is_native_event

__all__ = ["JobEvent", "StatusNews", "parse_job_event", "parse_status_news"]

_ENDED: Final = ("Completed", "Failed", "Stopped")
_INTERRUPTED: Final = "Interrupted"
_MAX_NAME: Final = 256


@dataclass(frozen=True)
class JobEvent:
    """What became of a job.

    Attributes:
        training_job_name: Name of the job.
        has_ended: True once it runs no more, whatever came of it.
        is_interrupted: True when its spot instances were taken away; it is to go on.
        at: When that was, seconds since the epoch.
    """

    training_job_name: str
    has_ended: bool
    is_interrupted: bool
    at: float


@dataclass(frozen=True)
class StatusNews:
    """The job that an event is about. What it says of statuses is not taken.

    Attributes:
        training_job_name: Name of the job.
        root_uri: The trial's root.
    """

    training_job_name: str
    root_uri: str


def parse_job_event(event: object, context: object = None) -> JobEvent | None:
    """Return what an event says; None if it is none of SageMaker's about a training job.

    Events of any other source are not believed: our own have the same type, and nobody but
    SageMaker can send with its source.

    Args:
        event: An EventBridge event; whatever JSON it is, nothing is raised.
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


def parse_status_news(event: object) -> StatusNews | None:
    """Return which job an event of ours is about; None if it is none.

    Args:
        event: An EventBridge event; whatever JSON it is, nothing is raised.
    """
    if not isinstance(event, Mapping) or event.get("source") != STATUS_SOURCE:
        return None
    detail = event.get("detail")
    if event.get("detail-type") != STATUS_DETAIL_TYPE or not isinstance(detail, Mapping):
        return None
    name = _text(detail.get("TrainingJobName"), _MAX_NAME)
    root_uri = _text(detail.get("DebugOutputUri"), MAX_ROOT_BYTES)
    return StatusNews(name, root_uri) if name and root_uri else None


def _text(value: object, max_length: int) -> str:
    return (
        value if isinstance(value, str) and value.isprintable() and len(value) <= max_length else ""
    )
