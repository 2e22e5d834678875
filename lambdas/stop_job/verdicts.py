"""Which rules found an issue in a run, as the table of evaluation states has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lambdas.contracts.events import STATE_PARTITION_KEY, STATE_SORT_KEY
from lambdas.shared.items import Items
from lambdas.shared.state_table import StateKey
from rule_runtime.engine.outcome import RuleStatus

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Verdicts"]


class Verdicts:
    """The verdicts on runs.

    Args:
        client: DynamoDB client.
        table_name: Name of the table of evaluation states.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._items = Items(client, table_name)

    def rules_with_issues(self, root_uri: str, run_id: str) -> set[str]:
        """Return the configuration names of the rules that found an issue in a run."""
        found = self._items.query(
            ConsistentRead=True,
            KeyConditionExpression="#run = :run",
            FilterExpression="#status = :found",
            ProjectionExpression="#rule",
            ExpressionAttributeNames={
                "#run": STATE_PARTITION_KEY,
                "#rule": STATE_SORT_KEY,
                "#status": "status",
            },
            ExpressionAttributeValues={
                ":run": {"S": StateKey(root_uri, run_id, "").run},
                ":found": {"S": RuleStatus.ISSUES_FOUND.value},
            },
        )
        return {item[STATE_SORT_KEY]["S"] for item in found}
