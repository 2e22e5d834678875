"""Puts Stepwatch's events on the bus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts.events import STATUS_SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_events import EventBridgeClient

__all__ = ["AnnouncementError", "EventBus", "bounded"]

_MAX_TEXT: Final = 2048
"""Maximum length of a text in an event, in characters (names come from files)."""


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
