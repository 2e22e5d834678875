"""Records sent messages, so that a repeated event sends no second message.

A message is claimed before it is sent, and marked as sent afterwards. If the process dies in
between, the next call with the event sends the message when the claim has expired.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts.events import (
    STATE_TTL_ATTRIBUTE,
    notice_partition,
)
from lambdas.shared.items import Items, item_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["NoticeKey", "SentNotices"]

_RETENTION_S: Final = 90 * 24 * 3600
"""Seconds after the message when the table deletes its record."""
_SORT_KEY: Final = "#notice"
_MAX_ABOUT: Final = 1024
_CLAIM_S: Final = 45.0
"""Longer than the function's timeout, shorter than Lambda's delay before it retries an event."""


@dataclass(frozen=True)
class NoticeKey:
    """Identifies a message.

    Attributes:
        parts: Names of the changed object, and of the change; strings of any length.
    """

    parts: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A unique digest; joined names could be ambiguous."""
        return hashlib.sha256(json.dumps(self.parts).encode()).hexdigest()


class SentNotices:
    """The records in the table of evaluation states.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._items = Items(client, table_name)

    def claim(self, key: NoticeKey) -> bool:
        """Claim a message; return False if it was sent, or another call is sending it."""
        now = time.time()
        refusal = self._items.put(
            {
                **_key(key),
                "about": {"S": json.dumps(key.parts)[:_MAX_ABOUT]},
                "is_sent": {"BOOL": False},
                "claimed_at": {"N": str(round(now * 1000))},
                STATE_TTL_ATTRIBUTE: {"N": str(round(now) + _RETENTION_S)},
            },
            ConditionExpression="attribute_not_exists(is_sent) "
            "OR (is_sent = :no AND claimed_at < :old)",
            ExpressionAttributeValues={
                ":no": {"BOOL": False},
                ":old": {"N": str(round((now - _CLAIM_S) * 1000))},
            },
        )
        return refusal is None

    def mark_sent(self, key: NoticeKey) -> None:
        """Record that a claimed message was sent."""
        yes = {":yes": {"BOOL": True}}
        self._items.update(_key(key), "SET is_sent = :yes", ExpressionAttributeValues=yes)

    def release(self, key: NoticeKey) -> None:
        """Release the claim on a message that could not be sent."""
        self._items.delete(_key(key))


def _key(key: NoticeKey) -> dict[str, Any]:
    return item_key(notice_partition(key.digest), _SORT_KEY)
