"""Converts the states of several rules over one run into one item and back, without requests."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from lambdas.contracts.events import (
    ACTIVE,
    ACTIVE_ATTRIBUTE,
    STATE_TTL_ATTRIBUTE,
    UPDATED_AT_ATTRIBUTE,
)
from lambdas.shared.state_item import (
    DAMAGES,
    MAX_ITEM_BYTES,
    MAX_MEMORY_JSON_BYTES,
    RETENTION_S,
    MemoryTooLargeError,
    StateKey,
    StoredState,
    compressed_memory,
    damaged_state,
    decompressed_memory,
    index_time_ms,
)
from rule_runtime.engine.state import EvaluationState

__all__ = [
    "GROUP_CONTENT",
    "MAX_GROUP_BYTES",
    "DamagedGroupError",
    "attributes_of_group",
    "index_time_of_group",
    "packed_group",
    "packed_rest",
    "states_of_group",
]

MAX_GROUP_BYTES: Final = 64 * 1024
"""Maximum compressed states inside an item; each write of the item pays for them."""
_MARGIN_BYTES: Final = 4 * 1024  # the other attributes

_STATES: Final = "states"
GROUP_CONTENT: Final = ("version", _STATES)
"""Attributes of an item that change with each write."""


class DamagedGroupError(Exception):
    """An item holds no states."""


def packed_group(
    states: Mapping[str, StoredState], put: Callable[[StoredState, bytes], str]
) -> tuple[bytes, dict[str, StoredState]]:
    """Return states in stored form, and as stored; the largest memories may become objects.

    Args:
        states: The states by rule.
        put: Stores a memory and returns the name of its object.

    Raises:
        MemoryTooLargeError: They exceed the size of an item.
    """
    packed = {rule: replace(stored, memory_object="") for rule, stored in states.items()}
    content = {rule: _content(stored) for rule, stored in packed.items()}
    data = _compressed(content)
    inline = [] if data else sorted(content, key=lambda rule: len(_json(content[rule]["state"])))
    largest = inline[-1] if inline else ""
    while data is None and inline:
        rule = inline.pop()
        name = put(
            states[rule],
            compressed_memory(states[rule].key, content[rule]["state"]["memory"]),
        )
        packed[rule] = replace(states[rule], memory_object=name)
        content[rule] = _content(packed[rule])
        data = _compressed(content, MAX_GROUP_BYTES if inline else MAX_ITEM_BYTES - _MARGIN_BYTES)
    if data is None:
        raise MemoryTooLargeError(states[largest].key, len(_json(content)))
    return data, packed


def packed_rest(states: Mapping[str, StoredState]) -> bytes:
    """Return some of an item's states in stored form; memories in objects stay there."""
    content = {rule: _content(stored) for rule, stored in states.items()}
    return zlib.compress(_json(content).encode(), level=6)


def attributes_of_group(
    version: int, data: bytes, states: Mapping[str, StoredState], indexed_at_ms: int, now: float
) -> dict[str, Any]:
    """Return the attributes of an item, except its keys.

    Args:
        version: Its version.
        data: The states in stored form.
        states: The states.
        indexed_at_ms: Time of the last files in the index so far, milliseconds since the epoch.
        now: Seconds since the epoch.
    """
    every = [stored.state for stored in states.values()]
    attributes: dict[str, Any] = {
        "version": {"N": str(version)},
        _STATES: {"B": data},
        # Sums: an item is announced if each of its states is.
        "transition": {"N": str(sum(state.transition for state in every))},
        "announced_transition": {"N": str(sum(state.announced_transition for state in every))},
        "ended": {"BOOL": all(state.ended for state in every)},
        UPDATED_AT_ATTRIBUTE: {"N": str(index_time_of_group(indexed_at_ms, states))},
        STATE_TTL_ATTRIBUTE: {"N": str(round(now) + RETENTION_S)},
    }
    if not all(state.ended and state.is_announced for state in every):
        attributes[ACTIVE_ATTRIBUTE] = {"S": ACTIVE}
    return attributes


def index_time_of_group(indexed_at_ms: int, states: Mapping[str, StoredState]) -> int:
    """Return the time of a group's last files for the index, milliseconds since the epoch."""
    updated_at_ms = max((stored.updated_at_ms for stored in states.values()), default=0)
    return index_time_ms(indexed_at_ms, updated_at_ms)


def states_of_group(
    key: StateKey, item: Mapping[str, Any]
) -> tuple[int, int, dict[str, StoredState]]:
    """Return version, time in the index (milliseconds), and states by rule, without large memories.

    Raises:
        DamagedGroupError: It holds no states.
    """
    try:
        version = int(item["version"]["N"])
        content = decompressed_memory(item[_STATES]["B"])
        indexed_at_ms = int(item.get(UPDATED_AT_ATTRIBUTE, {"N": "0"})["N"])
        states = {
            rule: _stored(replace(key, rule=rule), version, of) for rule, of in content.items()
        }
    except DAMAGES as error:
        raise DamagedGroupError(f"{type(error).__name__}: {error}") from error
    return version, indexed_at_ms, states


def _content(stored: StoredState) -> dict[str, Any]:
    state = stored.state.to_json()
    content = {"changed": stored.status_changed_at_ms, "updated": stored.updated_at_ms}
    if stored.memory_object:
        state["memory"] = {}
    return {"state": state, "object": stored.memory_object, "note": stored.note, **content}


def _stored(key: StateKey, version: int, content: Any) -> StoredState:
    try:
        return StoredState(
            key=key,
            state=EvaluationState.from_json(content["state"]),
            version=version,
            status_changed_at_ms=int(content["changed"]),
            updated_at_ms=int(content["updated"]),
            memory_object=str(content["object"]),
            note=str(content["note"]),
        )
    except DAMAGES as error:
        state = damaged_state(f"{type(error).__name__}: {error}")
        return StoredState(key, state, version=version, is_damaged=True)


def _compressed(content: Mapping[str, Any], most: int = MAX_GROUP_BYTES) -> bytes | None:
    """Return states in stored form; None if they are too large."""
    text = _json(content).encode()
    data = zlib.compress(text, level=6) if len(text) <= MAX_MEMORY_JSON_BYTES else None
    return data if data is not None and len(data) <= most else None


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
