"""The states of all rules over a run, as the table has them, without what they remember."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lambdas.contracts.events import STATE_PARTITION_KEY, STATE_SORT_KEY
from lambdas.shared.state_table import StateKey
from rule_runtime.engine.state import EvaluationState, Progress

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["RunStates"]

_ATTRIBUTES = (
    *("status", "transition", "announced_transition", "ended"),
    *("blocked_by", "counts", "evidence"),
)
_NO_PROGRESS = Progress().to_json()


class RunStates:
    """The states of rules by run.

    Args:
        client: DynamoDB client.
        table_name: Name of the table of evaluation states.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def load(self, root_uri: str, run_id: str) -> dict[str, EvaluationState]:
        """Return the state of each rule over a run, by its configuration name.

        Raises:
            ClientError: The table failed.
        """
        names = {f"#{name}": name for name in (*_ATTRIBUTES, STATE_SORT_KEY)}
        query: dict[str, Any] = {
            "TableName": self._table_name,
            "ConsistentRead": True,
            "KeyConditionExpression": "#run = :partition",
            "ProjectionExpression": ", ".join(names),
            "ExpressionAttributeNames": {**names, "#run": STATE_PARTITION_KEY},
            "ExpressionAttributeValues": {":partition": {"S": StateKey(root_uri, run_id, "").run}},
        }
        states: dict[str, EvaluationState] = {}
        while True:
            answer: Any = self._client.query(**query)
            states |= {item[STATE_SORT_KEY]["S"]: _state(item) for item in answer["Items"]}
            if "LastEvaluatedKey" not in answer:
                return states
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def _state(item: dict[str, Any]) -> EvaluationState:
    told = {
        name: json.loads(item[name]["S"]) if name in item else None
        for name in ("blocked_by", "counts", "evidence")
    }
    return EvaluationState.from_json(
        {
            "status": item["status"]["S"],
            "transition": int(item["transition"]["N"]),
            "announced_transition": int(item["announced_transition"]["N"]),
            "ended": item["ended"]["BOOL"],
            "progress": _NO_PROGRESS,
            "memory": {},
            **told,
        }
    )
