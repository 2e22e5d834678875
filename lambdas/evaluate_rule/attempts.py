"""Records attempts at jobs, to detect jobs that make the process die.

Each attempt at a job is recorded before it begins, and removed after it ends, with any result. A
remaining record shows that a process ran out of memory or time. Attempts are recorded only for
repeated deliveries, so that a normal batch costs nothing.
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
"""Seconds after the last write when the table deletes a record."""


class Attempts(Protocol):
    """The attempts of one function's evaluators."""

    def num_unfinished(self, root_uri: str) -> int:
        """Return the number of unfinished attempts at the job below a root."""
        ...

    def begin(self, root_uri: str) -> None:
        """Record the beginning of an attempt."""
        ...

    def end(self, root_uri: str) -> None:
        """Remove all records of a root, because the process is alive."""
        ...


class DynamoAttempts:
    """The attempts in the table of evaluation states.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
        rule: Configuration name of the function's rule, or its placeholder.
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
        """Return the number of unfinished attempts at the job below a root."""
        item = self._items.get(self._key(root_uri))
        return int(item["unfinished"]["N"]) if "unfinished" in item else 0

    def begin(self, root_uri: str) -> None:
        """Record the beginning of an attempt."""
        expires_at = round(self._clock()) + _RETENTION_S
        self._items.update(
            self._key(root_uri),
            f"SET {STATE_TTL_ATTRIBUTE} = :expires ADD unfinished :one",
            ExpressionAttributeValues={":expires": {"N": str(expires_at)}, ":one": {"N": "1"}},
        )

    def end(self, root_uri: str) -> None:
        """Remove all records of a root, because the process is alive."""
        self._items.update(self._key(root_uri), "REMOVE unfinished")

    def _key(self, root_uri: str) -> dict[str, Any]:
        return item_key(attempts_partition(root_uri), self._rule)
