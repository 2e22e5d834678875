"""Converts an evaluation state into an item of the table and back, without requests."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lambdas.contracts.events import (
    ACTIVE,
    ACTIVE_ATTRIBUTE,
    MAX_INDEX_LAG_S,
    SEEN_AT_ATTRIBUTE,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    STATE_TTL_ATTRIBUTE,
    UPDATED_AT_ATTRIBUTE,
)
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState, Progress

__all__ = [
    "DAMAGES",
    "MAX_INLINE_MEMORY_BYTES",
    "MAX_ITEM_BYTES",
    "MAX_MEMORY_BYTES",
    "MAX_MEMORY_JSON_BYTES",
    "OPTIONAL_ATTRIBUTES",
    "RETENTION_S",
    "MemoryTooLargeError",
    "StateKey",
    "StoredState",
    "attributes_of",
    "compressed_memory",
    "damaged_state",
    "decompressed_memory",
    "index_time_ms",
    "key_attributes",
    "num_seen",
    "state_of",
    "stored_state",
    "successor",
]

MAX_ITEM_BYTES: Final = 400 * 1024
"""Maximum size of an item in DynamoDB, bytes."""
MAX_INLINE_MEMORY_BYTES: Final = 32 * 1024
"""Maximum compressed memory inside an item; each write of the item pays for it."""
MAX_MEMORY_BYTES: Final = 4 << 20
"""Maximum compressed memory."""
MAX_MEMORY_JSON_BYTES: Final = 32 << 20
"""Maximum memory before compression; it is copied at every step."""
RETENTION_S: Final = 90 * 24 * 3600
"""Seconds after the last write when the table deletes an item."""

_ITEM_MARGIN_BYTES: Final = 4 * 1024  # attribute names, numbers and DynamoDB's overhead
DAMAGES: Final = (LookupError, TypeError, ValueError, RecursionError, zlib.error)
"""Errors of parsing an item that `attributes_of` did not make."""
_MAX_REASON: Final = 400
"""Maximum characters of such an error; it can quote the item."""
_TEXTS: Final = ("blocked_by", "counts", "evidence")
OPTIONAL_ATTRIBUTES: Final = ("evidence", ACTIVE_ATTRIBUTE, "memory", "memory_object", "note")
"""Optional attributes of an item."""


class MemoryTooLargeError(ValueError):
    """A rule's state is too large to store.

    Args:
        key: The state's key.
        size: Its size in bytes.
        allowed: Maximum size in bytes.

    Attributes:
        rule: Configuration name of the rule.
    """

    def __init__(self, key: StateKey, size: int, allowed: int = MAX_ITEM_BYTES) -> None:
        self.rule = key.rule
        super().__init__(
            f"the state of {key.rule} takes {size} bytes, {allowed} are allowed: "
            "the rule keeps too much between steps; narrow its collections"
        )


@dataclass(frozen=True)
class StateKey:
    """The run of a job, and the rule that evaluates it."""

    root_uri: str
    run_id: str
    rule: str

    @property
    def run(self) -> str:
        """The partition key; unique, because a root ends in "/" and a run id has no "#"."""
        return f"{self.root_uri}#{self.run_id}"


@dataclass(frozen=True)
class StoredState:
    """An evaluation state in the table.

    Attributes:
        key: Run and rule.
        state: The evaluation's state.
        version: Increased by each write; 0 means that nothing is stored yet.
        status_changed_at_ms: Time of the last transition, milliseconds since the epoch.
        updated_at_ms: Time when files of the run were last processed, likewise.
        indexed_at_ms: The same in the index of active evaluations, where it lags.
        memory_object: Key of the memory's object below the root; empty if the item contains the
            memory.
        note: Explanation for people of an unusual end; otherwise empty.
        is_damaged: True if the item holds no state; `state` is the Error that replaces it.
    """

    key: StateKey
    state: EvaluationState
    version: int = 0
    status_changed_at_ms: int = 0
    updated_at_ms: int = 0
    indexed_at_ms: int = 0
    memory_object: str = ""
    note: str = ""
    is_damaged: bool = False


def successor(stored: StoredState, state: EvaluationState, now: float) -> StoredState:
    """Return the result of writing `state` over `stored`.

    Args:
        stored: Content of the table.
        state: The new state; its counter of announced transitions is ignored.
        now: Seconds since the epoch.
    """
    now_ms = round(now * 1000)
    has_changed = state.transition != stored.state.transition or not stored.version
    has_output = num_seen(state.progress) != num_seen(stored.state.progress)
    updated_at_ms = now_ms if has_output or not stored.version else stored.updated_at_ms
    return replace(
        stored,
        state=replace(state, announced_transition=stored.state.announced_transition),
        version=stored.version + 1,
        is_damaged=False,
        status_changed_at_ms=now_ms if has_changed else stored.status_changed_at_ms,
        updated_at_ms=updated_at_ms,
        indexed_at_ms=index_time_ms(stored.indexed_at_ms, updated_at_ms),
    )


def index_time_ms(indexed_at_ms: int, updated_at_ms: int) -> int:
    """Return the time of the last files for the index, where an entry moves only after a while.

    Args:
        indexed_at_ms: The time in the index, milliseconds since the epoch.
        updated_at_ms: The exact time, likewise.
    """
    is_near = 0 <= updated_at_ms - indexed_at_ms < 1000 * MAX_INDEX_LAG_S
    return indexed_at_ms if is_near else updated_at_ms


def compressed_memory(key: StateKey, memory: Any) -> bytes:
    """Return a rule's memory, given as JSON, in stored form.

    Raises:
        MemoryTooLargeError: It exceeds the maximum size.
    """
    text = _json(memory).encode()
    if len(text) > MAX_MEMORY_JSON_BYTES:
        raise MemoryTooLargeError(key, len(text), MAX_MEMORY_JSON_BYTES)
    return zlib.compress(text, level=6)


def decompressed_memory(data: bytes) -> Any:
    """Parse the result of `compressed_memory`.

    Raises:
        ValueError: The data is invalid.
    """
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(data, MAX_MEMORY_JSON_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"not a compressed memory: {error}") from None
    if not decompressor.eof:
        raise ValueError("not a whole memory")
    return json.loads(text)


def attributes_of(
    saved: StoredState, content: Mapping[str, Any], memory: bytes, now: float
) -> dict[str, Any]:
    """Return the attributes of an item, except its keys and its counter of announcements.

    Args:
        saved: Content of the item.
        content: Its state as JSON.
        memory: The compressed memory; ignored if an object contains it.
        now: Seconds since the epoch.

    Raises:
        MemoryTooLargeError: It exceeds the size of an item.
    """
    attributes: dict[str, Any] = {
        "version": {"N": str(saved.version)},
        "status": {"S": saved.state.status.value},
        "transition": {"N": str(saved.state.transition)},
        "ended": {"BOOL": saved.state.ended},
        "memory_version": {"N": str(saved.state.memory_version)},
        "status_changed_at": {"N": str(saved.status_changed_at_ms)},
        UPDATED_AT_ATTRIBUTE: {"N": str(saved.indexed_at_ms)},
        SEEN_AT_ATTRIBUTE: {"N": str(saved.updated_at_ms)},
        STATE_TTL_ATTRIBUTE: {"N": str(round(now) + RETENTION_S)},
        "progress": {"B": zlib.compress(_json(content["progress"]).encode(), level=6)},
    }
    for name in _TEXTS:
        if name in content:
            attributes[name] = {"S": _json(content[name])}
    if saved.memory_object:
        attributes["memory_object"] = {"S": saved.memory_object}
    else:
        attributes["memory"] = {"B": memory}
    if saved.note:
        attributes["note"] = {"S": saved.note}
    if not (saved.state.ended and saved.state.is_announced):
        attributes[ACTIVE_ATTRIBUTE] = {"S": ACTIVE}
    size = sum(_size(value) for value in attributes.values()) + _ITEM_MARGIN_BYTES
    if size > MAX_ITEM_BYTES:
        raise MemoryTooLargeError(saved.key, size)
    return attributes


def stored_state(key: StateKey, item: Mapping[str, Any]) -> StoredState:
    """Parse an item; without its memory if an object contains that."""
    try:
        return StoredState(
            key=key,
            state=_state_of(item),
            version=int(item["version"]["N"]),
            status_changed_at_ms=int(item["status_changed_at"]["N"]),
            updated_at_ms=int(item.get(SEEN_AT_ATTRIBUTE, item[UPDATED_AT_ATTRIBUTE])["N"]),
            indexed_at_ms=int(item[UPDATED_AT_ATTRIBUTE]["N"]),
            memory_object=item["memory_object"]["S"] if "memory_object" in item else "",
            note=item["note"]["S"] if "note" in item else "",
        )
    except DAMAGES as error:
        return StoredState(key, _damaged(item, error), is_damaged=True)


def damaged_state(problem: str, transition: int = 1) -> EvaluationState:
    """Return the Error that replaces a damaged state; its run is not evaluated any further.

    Args:
        problem: Why the state cannot be parsed.
        transition: The last transition, if it is known.
    """
    reason = f"its stored state is damaged: {problem}"[:_MAX_REASON]
    initial = replace(EvaluationState.initial(), transition=transition)
    return replace(initial, blocked_by=reason, ended=True).with_status(RuleStatus.ERROR)


def _damaged(item: Mapping[str, Any], error: Exception) -> EvaluationState:
    problem = f"{type(error).__name__}: {error}"
    try:
        return damaged_state(problem, int(item["transition"]["N"]))
    except DAMAGES:
        return damaged_state(problem)


def state_of(item: Mapping[str, Any]) -> EvaluationState:
    """Return the state that an item holds; without progress and memory, if the item has none.

    A damaged item is an Error with the reason.
    """
    try:
        return _state_of(item)
    except DAMAGES as error:
        return _damaged(item, error)


def _state_of(item: Mapping[str, Any]) -> EvaluationState:
    content: dict[str, Any] = {
        "status": item["status"]["S"],
        "transition": int(item["transition"]["N"]),
        "announced_transition": int(item["announced_transition"]["N"]),
        "ended": item["ended"]["BOOL"],
        "progress": json.loads(zlib.decompress(item["progress"]["B"]))
        if "progress" in item
        else Progress().to_json(),
        "memory": decompressed_memory(item["memory"]["B"]) if "memory" in item else {},
        "memory_version": int(item["memory_version"]["N"]) if "memory_version" in item else 0,
    }
    for name in _TEXTS:
        content[name] = json.loads(item[name]["S"]) if name in item else None
    return EvaluationState.from_json(content)


def key_attributes(key: StateKey) -> dict[str, Any]:
    """Return the keys of an item."""
    return {STATE_PARTITION_KEY: {"S": key.run}, STATE_SORT_KEY: {"S": key.rule}}


def num_seen(progress: Progress) -> int:
    """Return the number of processed files of a run, without those postponed for lack of room."""
    ranges = sum(
        last - first + 1 for worker in progress.workers.values() for first, last in worker.seen
    )
    unsequenced = sum(worker.unsequenced for worker in progress.workers.values())
    return ranges + unsequenced + len(progress.unreadable)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _size(attribute: Mapping[str, Any]) -> int:
    value = next(iter(attribute.values()))
    if isinstance(value, bool):
        return 1
    return len(value.encode() if isinstance(value, str) else value)
