"""A table of DynamoDB in this process, with the units that each request of it costs.

It knows the expressions that the functions use, and refuses others. A test runs the same simulation
on moto and compares.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lambdas.contracts.events import (
    ACTIVE_ATTRIBUTE,
    ACTIVE_INDEX_ATTRIBUTES,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    UPDATED_AT_ATTRIBUTE,
)

__all__ = ["InMemoryTable", "RefusedWriteError", "item_bytes"]

Item = dict[str, Any]

READ_UNIT_BYTES: Final = 4096
WRITE_UNIT_BYTES: Final = 1024
PAGE_BYTES: Final = 1 << 20
"""The most that a query reads in one request."""

_INDEXED: Final = (
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    ACTIVE_ATTRIBUTE,
    UPDATED_AT_ATTRIBUTE,
    *ACTIVE_INDEX_ATTRIBUTES,
)
_CLAUSE: Final = re.compile(r"\b(SET|REMOVE|ADD)\s+")
_IF_ABSENT: Final = re.compile(r"if_not_exists\((\S+), (\S+)\)")
_TERM: Final = re.compile(
    r"(?P<call>attribute_not_exists|attribute_exists|begins_with)"
    r"\((?P<of>[^,)]+)(?:, (?P<with>\S+))?\)"
    r"|(?P<left>\S+) (?P<operator>=|<=|<) (?P<right>\S+)"
)


class RefusedWriteError(Exception):
    """The condition of a write is not met.

    Attributes:
        item: The item as it is; None if there is none.
    """

    def __init__(self, item: Item | None) -> None:
        super().__init__("the condition is not met")
        self.item = item


@dataclass
class InMemoryTable:
    """The state table with its index of active evaluations.

    Attributes:
        partitions: The items by their partition key, and by their sort key in it.
        units: Read and write units that the requests so far would have used.
        writes: Write units by partition key, of the table and of the index: "index <key>".
    """

    partitions: dict[str, dict[str, Item]] = field(default_factory=dict)
    units: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    writes: Counter[str] = field(default_factory=Counter)

    def get(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer GetItem."""
        item = self._item(request["Key"])
        share = 1.0 if request.get("ConsistentRead") else 0.5
        self.units["read"] += share * _units(item, READ_UNIT_BYTES)
        return {} if item is None else {"Item": dict(item)}

    def put(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer PutItem.

        Raises:
            RefusedWriteError: The condition is not met.
        """
        self._check(request, request["Item"])
        self._replace(dict(request["Item"]))
        return {}

    def delete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer DeleteItem."""
        partition, name = _key(request["Key"])
        self.partitions.get(partition, {}).pop(name, None)
        return {}

    def update(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer UpdateItem.

        Raises:
            RefusedWriteError: The condition is not met.
        """
        before = self._check(request, request["Key"])
        self._replace(_updated(before or dict(request["Key"]), request))
        return {}

    def query(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer Query, of the table or of the index of active evaluations."""
        condition = request["KeyConditionExpression"]
        candidates = self._active() if "IndexName" in request else self._of_partition(request)
        found = [item for item in candidates if _holds(condition, item, request)]
        start = request.get("ExclusiveStartKey")
        begin = next(n for n, i in enumerate(found) if _key(i) == _key(start)) + 1 if start else 0
        page, size = [], 0
        for item in found[begin:]:
            page.append(item)
            size += item_bytes(item)
            if size >= PAGE_BYTES:
                break
        share = 1.0 if request.get("ConsistentRead") else 0.5
        self.units["read"] += share * max(math.ceil(size / READ_UNIT_BYTES), 1)
        answer: dict[str, Any] = {"Items": page}
        if begin + len(page) < len(found):
            answer["LastEvaluatedKey"] = page[-1]
        return answer

    def items(self) -> Iterator[Item]:
        """Yield all items."""
        for partition in self.partitions.values():
            yield from partition.values()

    def _active(self) -> list[Item]:
        """Return the entries of the index in its order."""
        entries = [_projection(item) for item in self.items() if ACTIVE_ATTRIBUTE in item]
        return sorted(entries, key=lambda item: int(item[UPDATED_AT_ATTRIBUTE]["N"]))

    def _of_partition(self, request: Mapping[str, Any]) -> list[Item]:
        wanted = request["ExpressionAttributeValues"][":partition"]["S"]
        partition = self.partitions.get(wanted, {})
        return [partition[name] for name in sorted(partition)]

    def _item(self, key: Mapping[str, Any]) -> Item | None:
        partition, name = _key(key)
        return self.partitions.get(partition, {}).get(name)

    def _check(self, request: Mapping[str, Any], key: Mapping[str, Any]) -> Item | None:
        """Return the item under a key if it meets the condition of a write."""
        before = self._item(key)
        condition = request.get("ConditionExpression")
        if condition and not _holds(condition, before or {}, request):
            self.units["write"] += _units(before, WRITE_UNIT_BYTES)
            raise RefusedWriteError(before)
        return before

    def _replace(self, item: Item) -> None:
        partition, name = _key(item)
        before = self._item(item)
        self.partitions.setdefault(partition, {})[name] = item
        written = max(_units(before, WRITE_UNIT_BYTES), _units(item, WRITE_UNIT_BYTES))
        moved = _index_units(before, item)
        self.units["write"] += written
        self.units["index write"] += moved
        self.writes[partition] += written
        active = (item.get(ACTIVE_ATTRIBUTE) or (before or {}).get(ACTIVE_ATTRIBUTE) or {}).get("S")
        if moved:
            self.writes[f"index {active}"] += moved


def item_bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item as DynamoDB counts it: names and values, in bytes."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "BOOL":
        return 1
    if kind == "N":
        return len(content) // 2 + 1
    return len(content if isinstance(content, bytes) else content.encode())


def _units(item: Mapping[str, Any] | None, unit_bytes: int) -> int:
    return 1 if item is None else max(math.ceil(item_bytes(item) / unit_bytes), 1)


def _projection(item: Item) -> Item:
    return {name: item[name] for name in _INDEXED if name in item}


def _index_units(before: Item | None, after: Item) -> int:
    """Return what a write of an item costs in the index.

    Where a key of the index changes, the entry is removed and a new one put: two writes.
    """
    old = _projection(before) if before and ACTIVE_ATTRIBUTE in before else None
    new = _projection(after) if ACTIVE_ATTRIBUTE in after else None
    if old == new:
        return 0
    if old is None or new is None:
        return _units(old or new, WRITE_UNIT_BYTES)
    if old[UPDATED_AT_ATTRIBUTE] == new[UPDATED_AT_ATTRIBUTE]:
        return _units(new, WRITE_UNIT_BYTES)
    return _units(old, WRITE_UNIT_BYTES) + _units(new, WRITE_UNIT_BYTES)


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return item[STATE_PARTITION_KEY]["S"], item[STATE_SORT_KEY]["S"]


def _updated(item: Item, request: Mapping[str, Any]) -> Item:
    after = dict(item)
    _, *parts = _CLAUSE.split(request["UpdateExpression"])
    for clause, text in zip(parts[::2], parts[1::2], strict=True):
        for part in re.split(r", (?![^(]*\))", text.strip()):
            if clause == "REMOVE":
                after.pop(_name(part, request), None)
            elif clause == "SET":
                name, _, value = part.partition(" = ")
                after[_name(name, request)] = _operand(value, item, request)
            else:
                raise NotImplementedError(f"no {clause} in this table: {part}")
    return after


def _operand(text: str, item: Item, request: Mapping[str, Any]) -> Any:
    match = _IF_ABSENT.fullmatch(text)
    if match is None:
        return request["ExpressionAttributeValues"][text]
    present = item.get(_name(match[1], request))
    return request["ExpressionAttributeValues"][match[2]] if present is None else present


def _name(text: str, request: Mapping[str, Any]) -> str:
    name: str = request["ExpressionAttributeNames"][text] if text.startswith("#") else text
    return name


def _holds(condition: str, item: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Return whether an item meets a condition: terms joined by AND, or by OR."""
    joiner, combine = (" OR ", any) if " OR " in condition else (" AND ", all)
    return combine(_term(text, item, request) for text in condition.split(joiner))


def _term(text: str, item: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    match = _TERM.fullmatch(text)
    if match is None:
        raise NotImplementedError(f"this table does not know the condition {text!r}")
    values = request.get("ExpressionAttributeValues", {})
    present = item.get(_name(match["of"] or match["left"], request))
    if match["call"] == "attribute_not_exists":
        return present is None
    if match["call"] == "attribute_exists":
        return present is not None
    if present is None:
        return False
    if match["call"] == "begins_with":
        return bool(present["S"].startswith(values[match["with"]]["S"]))
    left, right = _plain(present), _plain(values[match["right"]])
    compared: Sequence[bool] = (left == right, left <= right, left < right)
    return compared[("=", "<=", "<").index(match["operator"])]


def _plain(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    return float(content) if kind == "N" else content
