"""Evaluation states of several rules over one run in DynamoDB, as one compressed item.

The item has the name of its evaluator. After a change of `stepwatch:evaluators`, states that are
missing in an item move there from the items of the other mode.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lambdas.contracts.events import (
    JOB_RULES,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
)
from lambdas.shared.group_item import (
    GROUP_CONTENT,
    DamagedGroupError,
    attributes_of_group,
    index_time_of_group,
    packed_group,
    packed_rest,
    states_of_group,
)
from lambdas.shared.items import Items, Refusal
from lambdas.shared.rule_memory import DamagedMemoryError
from lambdas.shared.state_item import (
    StateKey,
    StoredState,
    damaged_state,
    decompressed_memory,
    key_attributes,
    successor,
)
from lambdas.shared.state_table import MemoryLostError, StateTable
from lambdas.shared.states import Changes, GroupConflictError, StoredGroup

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from lambdas.shared.rule_memory import RuleMemories
    from rule_runtime.engine.state import EvaluationState

__all__ = ["StateGroups"]

_MAX_ATTEMPTS: Final = 8
_LONGEST_PAUSE_S: Final = 0.4


class StateGroups:
    """Groups of several rules in a DynamoDB table, each one item.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
        rule_items: The items of single rules, whose states are adopted; None to adopt none.
        memories: Stores memories that are too large for an item.
        clock: Seconds since the epoch.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        *,
        memories: RuleMemories,
        rule_items: StateTable | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._items = Items(client, table_name)
        self._rule_items = rule_items
        self._memories = memories
        self._clock = clock
        self._sleep = sleep

    def stored(self, key: StateKey) -> StoredGroup:
        """Return what the item of a group holds."""
        group = self._group(key, self._items.get(key_attributes(key)))
        # Another evaluator may just have written the next states, and removed a memory of these.
        while group.lost:
            again = self._group(key, self._items.get(key_attributes(key)))
            if again.version == group.version:
                break
            group = again
        return group

    def load(self, key: StateKey, rules: Iterable[str]) -> StoredGroup:
        """Return what the item holds; states of other rules come from their own items, once."""
        group = self.stored(key)
        if group.damage:
            state = damaged_state(group.damage)
            return replace(group, states={rule: _damaged(key, rule, state) for rule in rules})
        missing = [rule for rule in rules if rule not in group.states]
        if not missing or self._rule_items is None:
            return group
        found = self._items.query(
            ConsistentRead=True,
            KeyConditionExpression="#run = :partition",
            ExpressionAttributeNames={"#run": STATE_PARTITION_KEY},
            ExpressionAttributeValues={":partition": {"S": key.run}},
        )
        states, lost, adopted = dict(group.states), dict(group.lost), dict[str, str]()
        for rule in {item[STATE_SORT_KEY]["S"] for item in found}.intersection(missing):
            try:
                stored = self._rule_items.load(replace(key, rule=rule))
            except MemoryLostError as error:
                stored, lost[rule] = error.restart, str(error)
            if stored is not None:
                states[rule] = replace(stored, memory_object="")
                adopted[rule] = stored.memory_object
        return replace(group, states=states, adopted=adopted, lost=lost)

    def save(self, group: StoredGroup, changes: Changes) -> StoredGroup:
        """Replace the states of some rules."""
        now = self._clock()
        states = dict(group.states)
        for rule, (stored, state) in changes.items():
            states[rule] = successor(stored, state, now)
        saved = self._put(group, states)
        for rule, memory_object in group.adopted.items():
            key = replace(group.key, rule=rule)
            self._items.delete(key_attributes(key))
            self._remove({memory_object: key} if memory_object else {}, kept=())
        return saved

    def mark_announced(self, group: StoredGroup, rules: Collection[str]) -> StoredGroup:
        """Record announced transitions; what other evaluators wrote meanwhile stays."""
        announced = {rule: group.states[rule].state.transition for rule in rules}
        for _ in range(_MAX_ATTEMPTS):
            states = {
                rule: _with_announced(stored, announced.get(rule, 0))
                for rule, stored in group.states.items()
            }
            if states == group.states:
                break
            try:
                return self._put(group, states)
            except GroupConflictError as conflict:
                group = conflict.current
                self._sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 - only spreads load
        return group  # what is not recorded is announced again

    def retire(self, key: StateKey) -> None:
        """Remove the item of a rule, if its group's item holds the state."""
        if key.rule in self.stored(replace(key, rule=JOB_RULES)).states:
            self._items.delete(key_attributes(key))

    def release(self, stored: StoredState) -> None:
        """Remove the state of a rule that has its own item now.

        The item stays without states, for its version must increase while others may write it. It
        is not active, and expires.
        """
        key, rule = replace(stored.key, rule=JOB_RULES), stored.key.rule
        for _ in range(_MAX_ATTEMPTS):
            group = self._group(key, self._items.get(key_attributes(key)), has_memories=False)
            if rule not in group.states:
                return
            rest = {name: of for name, of in group.states.items() if name != rule}
            if self._write(group, packed_rest(rest), rest) is None:
                self._remove(_objects({rule: group.states[rule]}), kept=_objects({rule: stored}))
                return
            self._sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 - only spreads load

    def _group(
        self, key: StateKey, item: Mapping[str, Any] | None, *, has_memories: bool = True
    ) -> StoredGroup:
        if not item:
            return StoredGroup(key)
        lost: dict[str, str] = {}
        try:
            version, indexed_at_ms, found = states_of_group(key, item)
        except DamagedGroupError as error:
            return StoredGroup(key, damage=str(error), damaged=item)
        states = {
            rule: self._with_memory(stored, lost) if has_memories else stored
            for rule, stored in found.items()
        }
        return StoredGroup(key, states, version, lost=lost, indexed_at_ms=indexed_at_ms)

    def _with_memory(self, stored: StoredState, lost: dict[str, str]) -> StoredState:
        if not stored.memory_object:
            return stored
        try:
            memory = decompressed_memory(self._memories.get(stored.key, stored.memory_object))
        except (DamagedMemoryError, ValueError) as error:
            loss = MemoryLostError(stored, str(error))
            lost[stored.key.rule] = str(loss)
            return loss.restart
        return replace(stored, state=replace(stored.state, memory=memory))

    def _put(self, group: StoredGroup, states: Mapping[str, StoredState]) -> StoredGroup:
        """Write the item of `group`, with large memories as objects.

        Raises:
            GroupConflictError: The table no longer contains `group`.
        """
        version, kept = group.version + 1, self._memories

        def put(stored: StoredState, memory: bytes) -> str:
            name = stored.memory_object
            is_same = bool(name) and kept.holds(name, memory)
            return name if is_same else kept.put(stored.key, version, memory)

        data, packed = packed_group(states, put)
        refusal = self._write(group, data, packed)
        if refusal is not None:
            current = self._group(group.key, refusal.item)
            self._remove(_objects(packed), kept=_objects(current.states))
            raise GroupConflictError(current)
        self._remove(_objects(group.states), kept=_objects(packed))
        held = {
            rule: replace(stored, version=version, indexed_at_ms=0, state=states[rule].state)
            for rule, stored in packed.items()
        }
        indexed_at_ms = index_time_of_group(group.indexed_at_ms, packed)
        return StoredGroup(group.key, held, version, indexed_at_ms=indexed_at_ms)

    def _write(
        self, group: StoredGroup, data: bytes, states: Mapping[str, StoredState]
    ) -> Refusal | None:
        """Replace the item of `group`; return the refusal if the table no longer contains that."""
        attributes = attributes_of_group(
            group.version + 1, data, states, group.indexed_at_ms, self._clock()
        )
        return self._items.put(
            {**key_attributes(group.key), **attributes},
            **_condition(group),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    def _remove(self, names: Mapping[str, StateKey], kept: Collection[str]) -> None:
        for name, key in names.items():
            if name not in kept:
                self._memories.remove(key, name)


def _condition(group: StoredGroup) -> dict[str, Any]:
    """Return the condition that the table contains a group, or no item of its key."""
    expected: Mapping[str, Any] = {"version": {"N": str(group.version)}} if group.version else {}
    names = ["version"]
    if group.damage:
        expected, names = group.damaged, list(GROUP_CONTENT)
    values = {f":{name}": expected[name] for name in names if name in expected}
    terms = (
        f"#{name} = :{name}" if name in expected else f"attribute_not_exists(#{name})"
        for name in names
    )
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        **({"ExpressionAttributeValues": values} if values else {}),
    }


def _damaged(key: StateKey, rule: str, state: EvaluationState) -> StoredState:
    return StoredState(replace(key, rule=rule), state, is_damaged=True)


def _objects(states: Mapping[str, StoredState]) -> dict[str, StateKey]:
    return {stored.memory_object: stored.key for stored in states.values() if stored.memory_object}


def _with_announced(stored: StoredState, transition: int) -> StoredState:
    announced = max(stored.state.announced_transition, transition)
    return replace(stored, state=replace(stored.state, announced_transition=announced))
