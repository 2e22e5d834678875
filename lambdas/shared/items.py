"""Reads and writes items of a DynamoDB table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from lambdas.contracts.events import (
    ACTIVE_ATTRIBUTE,
    ACTIVE_INDEX,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Items", "Refusal", "item_key"]

_REFUSED: Final = "ConditionalCheckFailedException"
_BUSY: Final = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
    }
)
"""Errors of a table that is throttled or fails for a moment, beyond the retries of the SDK."""
_MAX_WRITES: Final = 7
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


@dataclass(frozen=True)
class Refusal:
    """A write that was rejected, because the item does not meet its condition.

    Attributes:
        item: The current item, if the write requested it; None if it does not exist.
    """

    item: Mapping[str, Any] | None


def item_key(partition: str, sort: str) -> dict[str, Any]:
    """Return the key of an item."""
    return {STATE_PARTITION_KEY: {"S": partition}, STATE_SORT_KEY: {"S": sort}}


class Items:
    """The items of a table.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._client: Any = client
        self._table_name = table_name

    def get(self, key: Mapping[str, Any], *, is_consistent: bool = True) -> dict[str, Any]:
        """Return the attributes of an item; empty if it does not exist."""
        answer = self._client.get_item(
            TableName=self._table_name, Key=key, ConsistentRead=is_consistent
        )
        found: dict[str, Any] = answer.get("Item") or {}
        return found

    def query(self, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of a query, with further requests as needed."""
        query["TableName"] = self._table_name
        while True:
            answer = self._client.query(**query)
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def active(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield active items of a kind from the index, the longest silent first."""
        return self.query(
            IndexName=ACTIVE_INDEX,
            KeyConditionExpression="#active = :active",
            ExpressionAttributeNames={"#active": ACTIVE_ATTRIBUTE},
            ExpressionAttributeValues={":active": {"S": kind}},
        )

    def put(self, item: Mapping[str, Any], **condition: Any) -> Refusal | None:
        """Write a whole item; return the refusal if the write was rejected."""
        return self._written(self._client.put_item, Item=item, **condition)

    def update(self, key: Mapping[str, Any], expression: str, **more: Any) -> Refusal | None:
        """Change an item; return the refusal if the write was rejected."""
        return self._written(self._client.update_item, Key=key, UpdateExpression=expression, **more)

    def delete(self, key: Mapping[str, Any]) -> None:
        """Remove an item."""
        self._client.delete_item(TableName=self._table_name, Key=key)

    def _written(self, write: Callable[..., object], **arguments: Any) -> Refusal | None:
        for attempt in range(_MAX_WRITES):
            try:
                write(TableName=self._table_name, **arguments)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == _REFUSED:
                    item: Any = error.response.get("Item")
                    return Refusal(item)
                if code not in _BUSY or attempt + 1 == _MAX_WRITES:
                    raise
            else:
                break
            longest = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
            time.sleep(random.uniform(0, longest))  # noqa: S311 - only spreads load
        return None
