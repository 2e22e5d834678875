"""Evaluation states in DynamoDB: read whole, written under the condition of their version.

One item is one rule's evaluation of one run of a job. Whoever evaluates loads the item, advances
the state, and writes it back only if nobody else did in between; the refusal carries the item as
it is now. The counter of announced transitions is written apart from the rest and only ever rises,
so that announcing and evaluating never stand in each other's way.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import ClientError

from lambdas.contracts.events import STATE_PARTITION_KEY, STATE_SORT_KEY, STATE_TTL_ATTRIBUTE
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.state import EvaluationState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = [
    "DynamoStateTable",
    "MemoryTooLargeError",
    "StateKey",
    "StateTable",
    "StoredState",
    "VersionConflictError",
]

RETENTION_S: Final = 90 * 24 * 3600
"""An item that nobody wrote for so long is deleted by the table, in seconds."""
MAX_ITEM_BYTES: Final = 400 * 1024
"""Largest item that DynamoDB takes, in bytes."""
_ITEM_MARGIN_BYTES: Final = 4 * 1024  # names of attributes, numbers and what DynamoDB adds
_ACTIVE: Final = "1"
_COMPRESSED: Final = ("memory", "progress")
_TEXTS: Final = ("blocked_by", "counts", "evidence")


class VersionConflictError(Exception):
    """Somebody else wrote the state first.

    Attributes:
        current: The state as it is now; None when the item is gone.
    """

    def __init__(self, key: StateKey, current: StoredState | None) -> None:
        super().__init__(f"the state of {key.rule} for {key.run} was written by another evaluator")
        self.current = current


class MemoryTooLargeError(ValueError):
    """A rule's memory does not fit into one item of the table."""

    def __init__(self, key: StateKey, size: int) -> None:
        super().__init__(
            f"the state of {key.rule} takes {size} bytes compressed, {MAX_ITEM_BYTES} are allowed: "
            "the rule keeps too much between steps; narrow its collections"
        )


@dataclass(frozen=True)
class StateKey:
    """The run of a job and the rule that is evaluated over it."""

    root_uri: str
    run_id: str
    rule: str

    @property
    def run(self) -> str:
        """The partition key; a root ends in "/" and a run id has no "#", so it is unique."""
        return f"{self.root_uri}#{self.run_id}"


@dataclass(frozen=True)
class StoredState:
    """An evaluation state as the table has it.

    Attributes:
        key: What is evaluated.
        state: The evaluation's state.
        version: Raised by each write; 0 means that nothing is stored yet.
        status_changed_at_ms: Time of the last transition, milliseconds since the epoch.
    """

    key: StateKey
    state: EvaluationState
    version: int = 0
    status_changed_at_ms: int = 0


class StateTable(Protocol):
    """What evaluators and the function that stops jobs need of the table."""

    def load(self, key: StateKey) -> StoredState | None:
        """Return the stored state, None when there is none."""
        ...

    def save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        """Write `state` in place of `stored`, all but its counter of announced transitions.

        Raises:
            VersionConflictError: The table does not hold `stored` any more.
            MemoryTooLargeError: The state does not fit into an item; nothing was written.
        """
        ...

    def mark_announced(self, stored: StoredState) -> StoredState:
        """Note that the latest transition of `stored` was announced."""
        ...


class DynamoStateTable:
    """The states in a DynamoDB table.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, client: DynamoDBClient, table_name: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._table_name = table_name
        self._clock = clock

    def load(self, key: StateKey) -> StoredState | None:
        """Return the stored state, None when there is none."""
        answer = self._client.get_item(
            TableName=self._table_name, Key=_key_attributes(key), ConsistentRead=True
        )
        item = answer.get("Item")
        return _stored_state(key, item) if item else None

    def save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        """Write `state` in place of `stored` if the table still holds that version."""
        now = self._clock()
        changed = state.transition != stored.state.transition or not stored.version
        saved = StoredState(
            key=stored.key,
            state=replace(state, announced_transition=stored.state.announced_transition),
            version=stored.version + 1,
            status_changed_at_ms=round(now * 1000) if changed else stored.status_changed_at_ms,
        )
        update = _update(saved, now)
        if stored.version:
            update.values[":expected"] = {"N": str(stored.version)}
            condition = "version = :expected"
        else:
            condition = "attribute_not_exists(version)"
        try:
            self._client.update_item(
                TableName=self._table_name,
                Key=_key_attributes(stored.key),
                UpdateExpression=update.expression,
                ConditionExpression=condition,
                ExpressionAttributeNames=update.names,
                ExpressionAttributeValues=update.values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            item: Any = error.response.get("Item")
            current = _stored_state(stored.key, item) if item else None
            raise VersionConflictError(stored.key, current) from error
        return saved

    def mark_announced(self, stored: StoredState) -> StoredState:
        """Raise the counter of announced transitions, unless another evaluator already did."""
        transition = stored.state.transition
        try:
            self._client.update_item(
                TableName=self._table_name,
                Key=_key_attributes(stored.key),
                UpdateExpression="SET announced_transition = :transition",
                ConditionExpression="announced_transition < :transition",
                ExpressionAttributeValues={":transition": {"N": str(transition)}},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
        return replace(stored, state=stored.state.announced())


@dataclass(frozen=True)
class _Update:
    """The parts of an UpdateItem request that write one state."""

    expression: str
    names: dict[str, str]
    values: dict[str, Any]


def _update(saved: StoredState, now: float) -> _Update:
    attributes = _attributes(saved, now)
    absent = [name for name in ("evidence", "active") if name not in attributes]
    # Every name goes through a placeholder: `status` and `memory` are words of the language.
    names = {f"#{name}": name for name in (*attributes, *absent)}
    values = {f":{name}": value for name, value in attributes.items()}
    values[":none"] = {"N": "0"}
    expression = "SET " + ", ".join(f"#{name} = :{name}" for name in attributes)
    expression += ", announced_transition = if_not_exists(announced_transition, :none)"
    if absent:
        expression += " REMOVE " + ", ".join(f"#{name}" for name in absent)
    return _Update(expression, names, values)


def _attributes(saved: StoredState, now: float) -> dict[str, Any]:
    content = saved.state.to_json()
    attributes: dict[str, Any] = {
        "version": {"N": str(saved.version)},
        "status": {"S": saved.state.status.value},
        "transition": {"N": str(saved.state.transition)},
        "ended": {"BOOL": saved.state.ended},
        "status_changed_at": {"N": str(saved.status_changed_at_ms)},
        "updated_at": {"N": str(round(now * 1000))},
        STATE_TTL_ATTRIBUTE: {"N": str(round(now) + RETENTION_S)},
    }
    for name in _COMPRESSED:
        attributes[name] = {"B": zlib.compress(_json(content[name]).encode(), level=6)}
    for name in _TEXTS:
        if content[name] is not None:
            attributes[name] = {"S": _json(content[name])}
    if saved.state.status is RuleStatus.IN_PROGRESS:
        attributes["active"] = {"S": _ACTIVE}
    size = sum(_size(value) for value in attributes.values()) + _ITEM_MARGIN_BYTES
    if size > MAX_ITEM_BYTES:
        raise MemoryTooLargeError(saved.key, size)
    return attributes


def _stored_state(key: StateKey, item: Mapping[str, Any]) -> StoredState:
    content: dict[str, Any] = {
        "status": item["status"]["S"],
        "transition": int(item["transition"]["N"]),
        "announced_transition": int(item["announced_transition"]["N"]),
        "ended": item["ended"]["BOOL"],
    }
    for name in _COMPRESSED:
        content[name] = json.loads(zlib.decompress(item[name]["B"]))
    for name in _TEXTS:
        content[name] = json.loads(item[name]["S"]) if name in item else None
    return StoredState(
        key=key,
        state=EvaluationState.from_json(content),
        version=int(item["version"]["N"]),
        status_changed_at_ms=int(item["status_changed_at"]["N"]),
    )


def _key_attributes(key: StateKey) -> dict[str, Any]:
    return {STATE_PARTITION_KEY: {"S": key.run}, STATE_SORT_KEY: {"S": key.rule}}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _size(attribute: Mapping[str, Any]) -> int:
    value = next(iter(attribute.values()))
    if isinstance(value, bool):
        return 1
    return len(value.encode() if isinstance(value, str) else value)
