"""Attempts at jobs that never came to an end, because the process died in between.

Anyone who is about to look at a job notes it first, and takes the note back afterwards, whatever
came of it. A remaining note shows that a process ran out of memory or of time. The
notes are only kept for records that come back, so that an ordinary batch costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from lambdas.contracts.events import (
    STATE_TTL_ATTRIBUTE,
    attempts_partition,
)
from lambdas.shared.items import Items, item_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Attempts", "DynamoAttempts"]

_RETENTION_S: Final = 24 * 3600
"""A note that nobody renewed for so long is deleted by the table, in seconds."""


class Attempts(Protocol):
    """The notes of one function's evaluators."""

    def num_unfinished(self, root_uri: str) -> int:
        """Return how many attempts at the job below a root were begun and not ended."""
        ...

    def begin(self, root_uri: str) -> None:
        """Note that an attempt begins."""
        ...

    def end(self, root_uri: str) -> None:
        """Take back all notes about a root: the process is alive."""
        ...


class DynamoAttempts:
    """The notes in the table of evaluation states.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
        rule: Name under which the function's rule is configured, or what stands for it.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        rule: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._items = Items(client, table_name)
        self._rule = rule
        self._clock = clock

    def num_unfinished(self, root_uri: str) -> int:
        """Return how many attempts at the job below a root were begun and not ended."""
        item = self._items.get(self._key(root_uri))
        return int(item["unfinished"]["N"]) if "unfinished" in item else 0

    def begin(self, root_uri: str) -> None:
        """Note that an attempt begins."""
        expires_at = round(self._clock()) + _RETENTION_S
        self._items.update(
            self._key(root_uri),
            f"SET {STATE_TTL_ATTRIBUTE} = :expires ADD unfinished :one",
            ExpressionAttributeValues={":expires": {"N": str(expires_at)}, ":one": {"N": "1"}},
        )

    def end(self, root_uri: str) -> None:
        """Take back all notes about a root: the process is alive."""
        self._items.update(self._key(root_uri), "REMOVE unfinished")

    def _key(self, root_uri: str) -> dict[str, Any]:
        return item_key(attempts_partition(root_uri), self._rule)
