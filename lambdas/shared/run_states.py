"""Reads the states of all rules over a run from the table, without their memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lambdas.contracts.events import STATE_PARTITION_KEY, STATE_SORT_KEY
from lambdas.shared.items import Items
from lambdas.shared.state_item import StateKey, state_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from rule_runtime.engine.state import EvaluationState

__all__ = ["RunStates"]

_ATTRIBUTES = (
    *("status", "transition", "announced_transition", "ended"),
    *("blocked_by", "counts", "evidence"),
)


class RunStates:
    """The states of rules by run.

    Args:
        client: DynamoDB client.
        table_name: Name of the table of evaluation states.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._items = Items(client, table_name)

    def load(self, root_uri: str, run_id: str) -> dict[str, EvaluationState]:
        """Return the state of each rule over a run, by its configuration name.

        A damaged state is an Error with the reason.

        Raises:
            ClientError: The table failed.
        """
        names = {f"#{name}": name for name in (*_ATTRIBUTES, STATE_SORT_KEY)}
        found = self._items.query(
            ConsistentRead=True,
            KeyConditionExpression="#run = :partition",
            ProjectionExpression=", ".join(names),
            ExpressionAttributeNames={**names, "#run": STATE_PARTITION_KEY},
            ExpressionAttributeValues={":partition": {"S": StateKey(root_uri, run_id, "").run}},
        )
        return {item[STATE_SORT_KEY]["S"]: state_of(item) for item in found}
