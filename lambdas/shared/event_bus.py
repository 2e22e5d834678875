"""Events on a bus: publishes Stepwatch's, and checks those of AWS.

Only AWS can send with the source `aws.sagemaker`. But a bus may receive events from other accounts
and Regions, where a job can have the same name. They keep their account and Region.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts.events import NATIVE_SOURCE, STATUS_SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_events import EventBridgeClient

__all__ = ["AnnouncementError", "EventBus", "bounded", "event_time", "is_native_event"]

_MAX_TEXT: Final = 2048
"""Maximum length of a text in an event, in characters (names come from files)."""
_REGION, _ACCOUNT = 3, 4
_MIN_PARTS: Final = 5


class AnnouncementError(Exception):
    """The bus did not accept an event; it must be announced again."""


class EventBus:
    """The bus of Stepwatch's events.

    Args:
        client: Returns the EventBridge client; called for the first event, which most calls do not
            send.
        name: Name of the bus.
    """

    def __init__(self, client: Callable[[], EventBridgeClient], name: str) -> None:
        self._client = client
        self._name = name

    def publish(
        self, detail_type: str, detail: Mapping[str, Any], *, arn: str | None = None, subject: str
    ) -> None:
        """Publish an event.

        Args:
            detail_type: Its type.
            detail: Its content.
            arn: ARN of the training job; None if it is unknown.
            subject: What the event says, for errors.

        Raises:
            AnnouncementError: The bus rejected the event.
        """
        answer = self._client().put_events(
            Entries=[
                {
                    "Source": STATUS_SOURCE,
                    "DetailType": detail_type,
                    "Detail": json.dumps(detail, allow_nan=False),
                    "EventBusName": self._name,
                    "Resources": [arn] if arn else [],
                }
            ]
        )
        if answer["FailedEntryCount"]:
            entry = answer["Entries"][0]
            raise AnnouncementError(
                f"the bus {self._name} refused {subject}: "
                f"{entry.get('ErrorCode')}: {entry.get('ErrorMessage')}"
            )


def bounded(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a member of an event, with texts of limited length."""
    return {name: _bounded(value) for name, value in content.items()}


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    return bounded(value) if isinstance(value, dict) else value


def is_native_event(event: Mapping[Any, Any], context: object) -> bool:
    """Return whether an event is SageMaker's, from the function's account and Region.

    Args:
        event: An event of EventBridge.
        context: Lambda's context, which names the function. Other objects are accepted for manual
            calls, which check only the source.
    """
    source = event.get("source")
    if not isinstance(source, str) or source != NATIVE_SOURCE:
        return False
    here = str(getattr(context, "invoked_function_arn", "")).split(":")
    if len(here) < _MIN_PARTS:
        return True
    return event.get("account") == here[_ACCOUNT] and event.get("region") == here[_REGION]


def event_time(event: Mapping[Any, Any]) -> float | None:
    """Return the time of an EventBridge event, seconds since the epoch; None if unknown."""
    value = event.get("time")
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
