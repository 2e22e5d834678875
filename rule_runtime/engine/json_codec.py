"""Converts dataclasses to JSON and back, and checks every type."""

from __future__ import annotations

import math
import reprlib
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["JsonError", "JsonRecord", "json_number"]

_NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PLAIN: Final = {str: "text", int: "a whole number", bool: "true or false"}


class JsonError(ValueError):
    """The JSON does not match the dataclass; the message names the member."""

    def __init__(self, path: str, expected: str, found: object) -> None:
        super().__init__(f"{path}: {expected} expected, {reprlib.repr(found)} found")


class JsonRecord:
    """A dataclass with a JSON form.

    Members that are None are omitted. Missing members get their default, and unknown ones are
    ignored, so members and items of named tuples can be added later.
    `field(metadata={"json": name})` sets a member's name in JSON. Dicts with other keys than text
    become lists of pairs, named tuples become lists, and values of type `Any` are stored unchanged.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the members as a JSON object; numbers that are not finite become their names."""
        kind: Any = type(self)
        return {
            member.key: _encoded(member.kind, value)
            for member in _members(kind)
            if (value := getattr(self, member.name)) is not None
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the object from `to_json`; the data can come from any source.

        Raises:
            JsonError: A member is missing, or has another type.
        """
        record: Self = _record(cls, data, cls.__name__)
        return record


def json_number(value: float) -> float | str:
    """Return a number that every JSON encoder accepts; non-finite numbers become their names."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Member(NamedTuple):
    """A member of a dataclass: its name, that in JSON, its type, and whether it has no default."""

    name: str
    key: str
    kind: Any
    is_required: bool


_hints = lru_cache(maxsize=64)(typing.get_type_hints)


@lru_cache(maxsize=64)
def _members(kind: Any) -> tuple[_Member, ...]:
    return tuple(
        _Member(
            member.name,
            member.metadata.get("json", member.name),
            _hints(kind)[member.name],
            member.default is MISSING and member.default_factory is MISSING,
        )
        for member in fields(kind)
    )


@lru_cache(maxsize=256)
def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(part for part in typing.get_args(kind) if part is not type(None))
    return kind


def _encoded(kind: Any, value: Any) -> Any:  # noqa: PLR0911 - one for each sort of type
    if kind is Any or value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, JsonRecord):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, Mapping):
        args = typing.get_args(_without_none(kind)) or (Any, Any)
        if args[0] is str:
            return {key: _encoded(args[1], each) for key, each in value.items()}
        return [[key, _encoded(args[1], each)] for key, each in sorted(value.items())]
    if isinstance(value, (list, tuple, set)):
        items = sorted(value) if isinstance(value, set) else value
        return [_encoded(object, each) for each in items]
    return value


def _decoded(kind: Any, data: Any, path: str) -> Any:  # noqa: PLR0911 - as above
    inner = _without_none(kind)
    if inner is Any or (inner is not kind and data is None):
        return data
    if inner is float:
        return _number(data, path)
    if inner in _PLAIN:
        return _checked(inner, _PLAIN[inner], data, path)
    origin = typing.get_origin(inner) or inner
    if issubclass(origin, JsonRecord):
        return _record(origin, data, path)
    if issubclass(origin, Enum):
        if data not in [each.value for each in origin]:
            raise JsonError(path, " or ".join(str(each.value) for each in origin), data)
        return origin(data)
    if issubclass(origin, Mapping):
        return _mapping(typing.get_args(inner), data, path)
    return _sequence(inner, data, path)


def _record(kind: Any, data: Any, path: str) -> Any:
    found = _checked(dict, "an object", data, path)
    values = {}
    for name, key, of, is_required in _members(kind):
        if found.get(key) is not None:
            values[name] = _decoded(of, found[key], f"{path}.{key}")
        elif is_required:
            raise JsonError(f"{path}.{key}", "a value", None)
    return kind(**values)


def _mapping(kinds: tuple[Any, ...], data: Any, path: str) -> dict[Any, Any]:
    key, value = kinds
    if key is not str:
        pairs: Any = list.__class_getitem__(tuple.__class_getitem__(kinds))
        return dict(_sequence(pairs, data, path))
    found = _checked(dict, "an object", data, path)
    return {name: _decoded(value, each, f"{path}.{name}") for name, each in found.items()}


def _sequence(kind: Any, data: Any, path: str) -> Any:
    """Return a list, a set, a tuple of items of one type, or a tuple with a type for each item.

    Named tuples ignore further items, and use defaults for missing ones.
    """
    found = _checked(list, "a list", data, path)
    args = typing.get_args(kind)
    origin = typing.get_origin(kind) or kind
    kinds = [args[0]] * len(found) if args else list(_hints(kind).values())
    if origin is tuple and args[-1] is not Ellipsis:
        kinds = list(args)
    if not args:
        num_required = len(kinds) - len(getattr(kind, "_field_defaults", ()))
        kinds, found = kinds[: max(len(found), num_required)], found[: len(kinds)]
    if len(kinds) != len(found):
        raise JsonError(path, f"a list of {len(kinds)}", data)
    pairs = enumerate(zip(kinds, found, strict=True))
    items = [_decoded(each, item, f"{path}[{at}]") for at, (each, item) in pairs]
    return origin(items) if args else origin(*items)


def _checked(kind: type, expected: str, data: Any, path: str) -> Any:
    if type(data) is not kind:
        raise JsonError(path, expected, data)
    return data


def _number(data: Any, path: str) -> float:
    if isinstance(data, str) and data in _NON_FINITE:
        return _NON_FINITE[data]
    if type(data) not in (int, float):
        raise JsonError(path, "a number", data)
    try:
        return float(data)
    except OverflowError:
        raise JsonError(path, "a number", data) from None
