"""Reads the states of all rules over a run from the table, without their memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lambdas.contracts.events import STATE_PARTITION_KEY, STATE_SORT_KEY
from lambdas.shared.items import Items
from lambdas.shared.state_item import DamagedStateError, StateKey, state_of
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from lambdas.shared.observability import Telemetry

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
        telemetry: Logs.
    """

    def __init__(self, client: DynamoDBClient, table_name: str, telemetry: Telemetry) -> None:
        self._items = Items(client, table_name)
        self._telemetry = telemetry

    def load(self, root_uri: str, run_id: str) -> dict[str, EvaluationState]:
        """Return the state of each rule over a run, by its configuration name.

        A damaged state is an Error that says so.

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
        return {(rule := item[STATE_SORT_KEY]["S"]): self._state(rule, item) for item in found}

    def _state(self, rule: str, item: Mapping[str, Any]) -> EvaluationState:
        try:
            return state_of(item)
        except DamagedStateError as error:
            reason = f"its stored state is damaged: {error}"
            self._telemetry.warning("the state of a rule is damaged", rule=rule, problem=str(error))
            state = replace(EvaluationState.initial(), blocked_by=reason, ended=True)
            return state.with_status(RuleStatus.ERROR)
