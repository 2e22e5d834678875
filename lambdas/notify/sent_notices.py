"""Which messages were sent, so that a repeated event sends no second message.

A message is claimed before it is sent, and noted as sent after. One that was claimed by a process
that died is sent by anyone who gets the event next, once the claim is too old to be of a live
process.
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
"""A note is deleted by the table so many seconds after the message."""
_SORT_KEY: Final = "#notice"
_MAX_ABOUT: Final = 1024
_CLAIM_S: Final = 45.0
"""Longer than the function may run, shorter than Lambda waits before it tries an event again."""


@dataclass(frozen=True)
class NoticeKey:
    """What a message is about.

    Attributes:
        parts: Names of what changed, and which change it was; any texts, of any length.
    """

    parts: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A name that no other message has: names run into each other, their hashes do not."""
        return hashlib.sha256(json.dumps(self.parts).encode()).hexdigest()


class SentNotices:
    """The notes in the table of evaluation states.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._items = Items(client, table_name)

    def claim(self, key: NoticeKey) -> bool:
        """Take a message; False when it was sent, or somebody else is about to send it."""
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
        """Note that a claimed message was sent."""
        yes = {":yes": {"BOOL": True}}
        self._items.update(_key(key), "SET is_sent = :yes", ExpressionAttributeValues=yes)

    def release(self, key: NoticeKey) -> None:
        """Give a claimed message back: it could not be sent."""
        self._items.delete(_key(key))


def _key(key: NoticeKey) -> dict[str, Any]:
    return item_key(notice_partition(key.digest), _SORT_KEY)
