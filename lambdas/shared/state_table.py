"""Evaluation states of single rules in DynamoDB, written with optimistic locking by version.

One item is one rule's evaluation of one run of a job. An evaluator loads the item, advances the
state, and writes it only if nobody else did in between; a rejected write returns the current item.
The counter of announced transitions is written separately and only increases, so that announcing
and evaluating do not conflict. A large memory is stored as an object before the item that names it,
and the previous object is removed afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from lambdas.contracts.events import ACTIVE_ATTRIBUTE, JOB_RULES
from lambdas.shared.items import Items, Refusal
from lambdas.shared.rule_memory import DamagedMemoryError
from lambdas.shared.state_item import (
    MAX_INLINE_MEMORY_BYTES,
    OPTIONAL_ATTRIBUTES,
    MemoryTooLargeError,
    StateKey,
    StoredState,
    attributes_of,
    compressed_memory,
    decompressed_memory,
    key_attributes,
    stored_state,
    successor,
)
from lambdas.shared.states import Changes, GroupConflictError, StoredGroup
from rule_runtime.engine.state import Counts, Progress

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from lambdas.shared.rule_memory import RuleMemories
    from lambdas.shared.state_groups import StateGroups
    from rule_runtime.engine.state import EvaluationState

__all__ = [
    "DynamoStateTable",
    "MemoryLostError",
    "MemoryTooLargeError",
    "RuleItems",
    "StateKey",
    "StateTable",
    "StoredState",
    "VersionConflictError",
]


_NOT_ANNOUNCED: Final = {"announced_transition": {"N": "0"}}


class VersionConflictError(Exception):
    """Another evaluator wrote the state first.

    Attributes:
        current: The current state; None if the item was deleted.
    """

    def __init__(self, key: StateKey, current: StoredState | None) -> None:
        super().__init__(f"the state of {key.rule} for {key.run} was written by another evaluator")
        self.current = current


class MemoryLostError(Exception):
    """The object with a rule's memory was removed or changed.

    Attributes:
        restart: The state to continue from: the beginning of the run, with the current verdict.
    """

    def __init__(self, stored: StoredState, reason: str) -> None:
        super().__init__(f"the memory of {stored.key.rule} for {stored.key.run} is lost: {reason}")
        counts = Counts(failure=stored.state.counts.failure)
        state = replace(stored.state, progress=Progress(), memory={}, counts=counts)
        self.restart = replace(stored, state=state, memory_object="")


class StateTable(Protocol):
    """The part of the table that evaluators and the function that stops jobs need."""

    def load(self, key: StateKey) -> StoredState | None:
        """Return the stored state; None if there is none.

        Raises:
            MemoryLostError: The rule's memory was removed.
        """
        ...

    def save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        """Replace `stored` by `state`, except its counter of announced transitions.

        Raises:
            VersionConflictError: The table no longer contains `stored`.
            MemoryTooLargeError: The state is too large; nothing was written.
        """
        ...

    def mark_announced(self, stored: StoredState) -> StoredState:
        """Record that the latest transition of `stored` was announced."""
        ...


class DynamoStateTable:
    """The states in a DynamoDB table.

    Args:
        client: DynamoDB client.
        table_name: Name of the table.
        clock: Seconds since the epoch.
        memories: Stores memories that are too large for an item. Without it, they are not read, and
            states with such memories cannot be saved.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        clock: Callable[[], float] = time.time,
        memories: RuleMemories | None = None,
    ) -> None:
        self._items = Items(client, table_name)
        self._clock = clock
        self._memories = memories

    def load(self, key: StateKey) -> StoredState | None:
        """Return the stored state; None if there is none."""
        stored = self._get(key)
        while stored is not None and stored.memory_object and self._memories is not None:
            try:
                data = self._memories.get(key, stored.memory_object)
                memory = decompressed_memory(data)
            except (DamagedMemoryError, ValueError) as error:  # noqa: PERF203 - rarely repeated
                # Another evaluator may just have written the next state, and removed this memory.
                again = self._get(key)
                if again is not None and again.memory_object == stored.memory_object:
                    raise MemoryLostError(again, str(error)) from error
                stored = again
            else:
                return replace(stored, state=replace(stored.state, memory=memory))
        return stored

    def save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        """Replace `stored` by `state` if the table still contains that version."""
        now = self._clock()
        saved = successor(stored, state, now)
        content = saved.state.to_json()
        memory = compressed_memory(stored.key, content["memory"])
        is_large = len(memory) > MAX_INLINE_MEMORY_BYTES
        memory_object = self._stored_apart(stored, saved, memory) if is_large else ""
        saved = replace(saved, memory_object=memory_object)
        try:
            key = key_attributes(saved.key)
            refusal = self._write(key, attributes_of(saved, content, memory, now), stored)
        except MemoryTooLargeError:
            self._remove_unless(saved, stored)
            raise
        if refusal is not None:
            held = stored_state(stored.key, refusal.item) if refusal.item else None
            self._remove_unless(saved, held)
            if held is not None and held.memory_object:
                held = self.load(stored.key)
            raise VersionConflictError(stored.key, held)
        self._remove_unless(stored, saved)
        return saved

    def mark_announced(self, stored: StoredState) -> StoredState:
        """Increase the counter of announced transitions, unless another evaluator already did.

        After that, an ended evaluation is no longer active.
        """
        transition = {"N": str(stored.state.transition)}
        expression = "SET announced_transition = :transition"
        key = key_attributes(stored.key)
        is_done = stored.state.ended and not self._items.update(
            key,
            f"{expression} REMOVE {ACTIVE_ATTRIBUTE}",
            ConditionExpression="version = :version",
            ExpressionAttributeValues={
                ":transition": transition,
                ":version": {"N": str(stored.version)},
            },
        )
        if not is_done:
            self._items.update(
                key,
                expression,
                ConditionExpression="announced_transition < :transition",
                ExpressionAttributeValues={":transition": transition},
            )
        return replace(stored, state=stored.state.announced())

    def _get(self, key: StateKey) -> StoredState | None:
        item = self._items.get(key_attributes(key))
        return stored_state(key, item) if item else None

    def _stored_apart(self, stored: StoredState, saved: StoredState, memory: bytes) -> str:
        """Store a memory that is too large for the item; return the object's name, or nothing."""
        if self._memories is None:
            return ""
        if stored.memory_object and self._memories.holds(stored.memory_object, memory):
            return stored.memory_object
        return self._memories.put(saved.key, saved.version, memory)

    def _remove_unless(self, of: StoredState, kept: StoredState | None) -> None:
        """Remove the memory of one state, unless the other one uses it, too."""
        is_shared = kept is not None and kept.memory_object == of.memory_object
        if of.memory_object and not is_shared and self._memories is not None:
            self._memories.remove(of.key, of.memory_object)

    def _write(
        self, key: Mapping[str, Any], attributes: Mapping[str, Any], expected: StoredState
    ) -> Refusal | None:
        """Write an item if it has the expected version (0: if it does not exist)."""
        if expected.is_damaged:
            self._items.put({**key, **attributes, **_NOT_ANNOUNCED})
            return None
        absent = [name for name in OPTIONAL_ATTRIBUTES if name not in attributes]
        # All names use placeholders, because `status` and `memory` are reserved words.
        names = {f"#{name}": name for name in (*attributes, *absent)}
        values = {f":{name}": value for name, value in attributes.items()}
        # An item whose state was adopted from another one begins with announced transitions.
        announced = 0 if expected.version else expected.state.announced_transition
        values[":none"] = {"N": str(announced)}
        condition = "attribute_not_exists(version)"
        if expected.version:
            values[":expected"] = {"N": str(expected.version)}
            condition = "version = :expected"
        assigned = ", ".join(f"#{name} = :{name}" for name in attributes)
        return self._items.update(
            key,
            f"SET {assigned}, announced_transition = "
            "if_not_exists(announced_transition, :none) "
            f"REMOVE {', '.join(f'#{name}' for name in absent)}",
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )


class RuleItems:
    """Groups of one rule each: one item per rule.

    Args:
        table: The items of rules.
        groups: Groups to adopt states from; None to adopt none.
    """

    def __init__(self, table: StateTable, groups: StateGroups | None = None) -> None:
        self._table = table
        self._groups = groups

    def load(self, key: StateKey, rules: Iterable[str]) -> StoredGroup:  # noqa: ARG002 - as others
        """Return the state of a rule, from its item or else from a group's."""
        try:
            stored = self._table.load(key)
        except MemoryLostError as error:
            return replace(_of_one(key, error.restart), lost={key.rule: str(error)})
        if stored is not None or self._groups is None:
            return _of_one(key, stored)
        group = self._groups.stored(replace(key, rule=JOB_RULES))
        if key.rule not in group.states:
            return StoredGroup(key)
        state = replace(group.states[key.rule], version=0, memory_object="")
        return StoredGroup(key, {key.rule: state}, adopted={key.rule: ""})

    def save(self, group: StoredGroup, changes: Changes) -> StoredGroup:
        """Replace the state of the rule."""
        stored, state = changes.get(group.key.rule) or _unchanged(group)
        try:
            saved = self._table.save(stored, state)
        except VersionConflictError as conflict:
            raise GroupConflictError(_of_one(group.key, conflict.current)) from conflict
        if group.adopted and self._groups is not None:
            self._groups.release(saved)
        return _of_one(group.key, saved)

    def mark_announced(self, group: StoredGroup, rules: Collection[str]) -> StoredGroup:  # noqa: ARG002
        """Record that the latest transition was announced."""
        (stored,) = group.states.values()
        return _of_one(group.key, self._table.mark_announced(stored))

    def retire(self, key: StateKey) -> None:
        """Remove the state of a rule from its group's item, if it has an item."""
        group = self.load(key, ())
        if self._groups is not None and not group.adopted:
            for stored in group.states.values():
                self._groups.release(stored)


def _of_one(key: StateKey, stored: StoredState | None) -> StoredGroup:
    return (
        StoredGroup(key) if stored is None else StoredGroup(key, {key.rule: stored}, stored.version)
    )


def _unchanged(group: StoredGroup) -> tuple[StoredState, EvaluationState]:
    (stored,) = group.states.values()
    return stored, stored.state
