"""Reads events that report the end of a rule's evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lambdas.contracts.events import MAX_ROOT_BYTES, STATUS_DETAIL_TYPE, STATUS_SOURCE

__all__ = ["StatusNews", "parse_status_news"]

_MAX_NAME: Final = 256


@dataclass(frozen=True)
class StatusNews:
    """The job that an event is about. What it says of statuses is not taken.

    Attributes:
        training_job_name: Name of the job.
        root_uri: The trial's root.
    """

    training_job_name: str
    root_uri: str


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
