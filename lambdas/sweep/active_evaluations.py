"""The evaluations that somebody has to come back to, as the index of the table lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lambdas.contracts.events import (
    ACTIVE,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    UPDATED_AT_ATTRIBUTE,
)
from lambdas.shared.items import Items
from lambdas.shared.state_item import StateKey

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["ActiveEvaluation", "ActiveEvaluations", "BrokenItemError"]

_ROOT = "s3://"


class BrokenItemError(ValueError):
    """An item of the index that is no evaluation."""


@dataclass(frozen=True)
class ActiveEvaluation:
    """What the index says of one rule over one run.

    Attributes:
        key: Which rule and run.
        is_announced: Whether the latest status was announced.
        has_ended: Whether the verdict is drawn.
        updated_at: When files of the run were last taken in, seconds since the epoch.
    """

    key: StateKey
    is_announced: bool
    has_ended: bool
    updated_at: float

    @classmethod
    def of_item(cls, item: Mapping[str, Any]) -> ActiveEvaluation:
        """Return what an item says.

        Raises:
            BrokenItemError: It is no evaluation's, or not whole.
        """
        try:
            root_uri, found, run_id = item[STATE_PARTITION_KEY]["S"].rpartition("#")
            evaluation = cls(
                key=StateKey(root_uri, run_id, item[STATE_SORT_KEY]["S"]),
                is_announced=(
                    int(item["announced_transition"]["N"]) >= int(item["transition"]["N"])
                ),
                has_ended=bool(item["ended"]["BOOL"]),
                updated_at=int(item[UPDATED_AT_ATTRIBUTE]["N"]) / 1000,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenItemError(f"the item is not whole: {error!r}") from error
        if not found or not root_uri.startswith(_ROOT):
            raise BrokenItemError(f"{item[STATE_PARTITION_KEY]['S']!r:.80} is no run")
        return evaluation


class ActiveEvaluations:
    """The sparse index of the table.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._items = Items(client, table_name)

    def items(self) -> Iterator[Mapping[str, Any]]:
        """Yield the items of the index, the longest silent first, asking for more as they go."""
        return self._items.active(ACTIVE)
