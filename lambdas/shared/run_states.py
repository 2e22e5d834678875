"""Reads the states of rules over a run from the table, without large memories.

A rule has its own item, or is in the item of a group. After a change of `stepwatch:evaluators` it
may be in both: the later state counts, because no evaluator takes a transition back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lambdas.contracts.events import JOB_RULES, STATE_PARTITION_KEY, STATE_SORT_KEY
from lambdas.shared.group_item import DamagedGroupError, states_of_group
from lambdas.shared.items import Items
from lambdas.shared.state_item import StateKey, StoredState, key_attributes, state_of, stored_state

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from rule_runtime.engine.state import EvaluationState

__all__ = ["RunStates"]

_ATTRIBUTES = (
    *("status", "transition", "announced_transition", "ended"),
    *("blocked_by", "counts", "evidence", "states", "version"),
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
        states: dict[str, EvaluationState] = {}
        for item in found:
            for rule, state in _states(StateKey(root_uri, run_id, ""), item):
                if rule not in states or _progress(state) > _progress(states[rule]):
                    states[rule] = state
        return states

    def verdict(self, key: StateKey) -> StoredState | None:
        """Return the state of one rule over a run; None if there is none.

        Raises:
            ClientError: The table failed.
        """
        own = self._items.get(key_attributes(key))
        group = self._items.get(key_attributes(replace(key, rule=JOB_RULES)))
        found = [stored_state(key, own)] if own else []
        found += [s for s in _of_group(key, group or {}) if s.key.rule == key.rule]
        return max(found, key=lambda stored: _progress(stored.state), default=None)


def _states(run: StateKey, item: Mapping[str, Any]) -> Iterator[tuple[str, EvaluationState]]:
    """Yield the rules of an item and their states."""
    rule = item[STATE_SORT_KEY]["S"]
    if rule == JOB_RULES:
        yield from ((stored.key.rule, stored.state) for stored in _of_group(run, item))
    else:
        yield rule, state_of(item)


def _of_group(run: StateKey, item: Mapping[str, Any]) -> Iterable[StoredState]:
    """Return the states of an item; none of a damaged one, which its evaluator replaces."""
    try:
        return states_of_group(run, item)[2].values() if item else ()
    except DamagedGroupError:
        return ()


def _progress(state: EvaluationState) -> tuple[int, bool, int]:
    """Return how far a state is, for comparison with another one of the same rule and run."""
    return state.transition, state.ended, state.counts.evaluated
