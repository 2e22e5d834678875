"""Records attempts at jobs and their rules, to detect those that make the process die.

Each attempt is recorded before it begins, and removed after it ends, with any result. A remaining
record shows that a process ran out of memory or time. Attempts are recorded only for repeated
deliveries, so that a normal batch costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from lambdas.contracts.events import (
    STATE_TTL_ATTRIBUTE,
    attempts_partition,
)
from lambdas.shared.items import Items, item_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Attempts", "DynamoAttempts", "RuleAttempts", "recorded"]

_RETENTION_S: Final = 24 * 3600
"""Seconds after the last write when the table deletes a record."""


class Attempts(Protocol):
    """The attempts of one function's evaluators at a job, or at one rule of it."""

    def num_unfinished(self, root_uri: str, rule: str = "") -> int:
        """Return the number of unfinished attempts; 0 while the last one may still go on."""
        ...

    def begin(self, root_uri: str, rule: str = "", until: float = 0) -> None:
        """Record the beginning of an attempt.

        Args:
            root_uri: The trial's root.
            rule: Configuration name of the rule; empty for all of the job.
            until: When the attempt has ended at the latest, seconds since the epoch.
        """
        ...

    def end(self, root_uri: str, rule: str = "") -> None:
        """Remove all records of an attempt, because the process is alive."""
        ...


@dataclass(frozen=True)
class RuleAttempts:
    """Attempts at the rules of one job.

    Attributes:
        attempts: Where they are recorded.
        root_uri: The trial's root.
        until: When this process has ended at the latest, seconds since the epoch.
    """

    attempts: Attempts
    root_uri: str
    until: float

    def num_deaths(self, rule: str) -> int:
        """Return how often the process ended while it evaluated a rule."""
        return self.attempts.num_unfinished(self.root_uri, rule)

    def of_rule(self, rule: str) -> AbstractContextManager[None]:
        """Record an attempt at a rule; the record stays if the process dies."""
        return recorded(self.attempts, self.root_uri, rule, self.until)


@contextmanager
def recorded(attempts: Attempts, root_uri: str, rule: str = "", until: float = 0) -> Iterator[None]:
    """Record an attempt; the record stays if the process dies."""
    attempts.begin(root_uri, rule, until)
    try:
        yield
    except Exception:
        attempts.end(root_uri, rule)
        raise
    attempts.end(root_uri, rule)


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

    def num_unfinished(self, root_uri: str, rule: str = "") -> int:
        """Return the number of unfinished attempts; 0 while the last one may still go on."""
        item = self._items.get(self._key(root_uri, rule))
        if "unfinished" not in item or int(item.get("until", {"N": "0"})["N"]) > self._clock():
            return 0
        return int(item["unfinished"]["N"])

    def begin(self, root_uri: str, rule: str = "", until: float = 0) -> None:
        """Record the beginning of an attempt."""
        expires_at = round(self._clock()) + _RETENTION_S
        self._items.update(
            self._key(root_uri, rule),
            f"SET {STATE_TTL_ATTRIBUTE} = :expires, #until = :until ADD unfinished :one",
            ExpressionAttributeNames={"#until": "until"},
            ExpressionAttributeValues={
                ":expires": {"N": str(expires_at)},
                ":until": {"N": str(round(until))},
                ":one": {"N": "1"},
            },
        )

    def end(self, root_uri: str, rule: str = "") -> None:
        """Remove all records of an attempt, because the process is alive."""
        self._items.update(self._key(root_uri, rule), "REMOVE unfinished")

    def _key(self, root_uri: str, rule: str) -> dict[str, Any]:
        return item_key(
            attempts_partition(root_uri), f"{self._rule}/{rule}" if rule else self._rule
        )
