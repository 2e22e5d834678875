"""JSON of dataclasses: writes their members, and reads them back with every type checked."""

from __future__ import annotations

import math
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["JsonError", "JsonRecord", "json_number"]

_NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PLAIN: Final = {str: "text", int: "a whole number", bool: "true or false"}


class JsonError(ValueError):
    """JSON of another form than the dataclass that it is read as; the message names the member."""

    def __init__(self, path: str, expected: str, found: object) -> None:
        super().__init__(f"{path}: {expected} expected, {reprlib.repr(found)} found")


class JsonRecord:
    """A dataclass that can be stored as JSON.

    Members that are None are left out. A missing member gets its default and an unknown one is
    ignored, so members can be added later. `field(metadata={"json": name})` sets a member's name
    in JSON. Dicts whose keys are not text become lists of pairs, named tuples become lists, and
    members of type `Any` are stored as they are.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the members as a JSON object; numbers that are not finite become their names."""
        kind: Any = type(self)
        encoded: dict[str, Any] = _codec(kind).encode(self)
        return encoded

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` wrote.

        Args:
            data: The decoded JSON object, which may come from anywhere.

        Raises:
            JsonError: A member is missing, or has another type.
        """
        kind: Any = cls
        decoded: Self = _codec(kind).decode(data, cls.__name__)
        return decoded


def json_number(value: float) -> float | str:
    """Return a number that any JSON encoder takes: one that is not finite becomes its name."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Codec(NamedTuple):
    """How values of one type are written, and read from data at a path that errors name."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any, str], Any]


@lru_cache(maxsize=256)
def _codec(kind: Any) -> _Codec:  # noqa: PLR0911 - one return for each sort of type
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return _Codec(_same, lambda data, _: data)
    if kind in _PLAIN:
        return _Codec(_same, lambda data, path: _checked(kind, _PLAIN[kind], data, path))
    if kind is float:
        return _Codec(json_number, _number)
    if origin in (typing.Union, types.UnionType):  # None or a value; records leave None out
        (inner,) = (_codec(arg) for arg in args if arg is not type(None))
        return _Codec(
            lambda value: None if value is None else inner.encode(value),
            lambda data, path: None if data is None else inner.decode(data, path),
        )
    if origin is tuple and args[-1] is not Ellipsis:
        return _row([_codec(arg) for arg in args], tuple)
    if origin in (tuple, list, set):
        return _items(_codec(args[0]), origin)
    if origin is not None:
        return _mapping(*args)
    if issubclass(kind, Enum):
        return _Codec(lambda value: value.value, lambda data, path: _choice(kind, data, path))
    hints = typing.get_type_hints(kind)
    if is_dataclass(kind):
        return _record(kind, hints)
    return _row([_codec(hint) for hint in hints.values()], lambda items: kind(*items))


def _record(kind: Any, hints: Mapping[str, Any]) -> _Codec:
    members = [
        (each, each.metadata.get("json", each.name), _codec(hints[each.name]))
        for each in fields(kind)
    ]

    def encode(value: Any) -> dict[str, Any]:
        return {
            key: codec.encode(member)
            for each, key, codec in members
            if (member := getattr(value, each.name)) is not None
        }

    def decode(data: Any, path: str) -> Any:
        found = _checked(dict, "an object", data, path)
        values = {}
        for each, key, codec in members:
            if found.get(key) is not None:
                values[each.name] = codec.decode(found[key], f"{path}.{key}")
            elif each.default is MISSING and each.default_factory is MISSING:
                raise JsonError(f"{path}.{key}", "a value", None)
        return kind(**values)

    return _Codec(encode, decode)


def _items(item: _Codec, kind: Callable[[Iterable[Any]], Any]) -> _Codec:
    def encode(value: Iterable[Any]) -> list[Any]:
        return [item.encode(each) for each in (sorted(value) if kind is set else value)]

    def decode(data: Any, path: str) -> Any:
        found = enumerate(_checked(list, "a list", data, path))
        return kind(item.decode(each, f"{path}[{at}]") for at, each in found)

    return _Codec(encode, decode)


def _row(items: list[_Codec], kind: Callable[[Iterable[Any]], Any]) -> _Codec:
    """Return the codec of tuples whose items have a type each."""

    def encode(value: Any) -> list[Any]:
        return [item.encode(each) for item, each in zip(items, value, strict=True)]

    def decode(data: Any, path: str) -> Any:
        if len(_checked(list, "a list", data, path)) != len(items):
            raise JsonError(path, f"a list of {len(items)}", data)
        pairs = zip(items, data, strict=True)
        return kind([item.decode(each, f"{path}[{at}]") for at, (item, each) in enumerate(pairs)])

    return _Codec(encode, decode)


def _mapping(key: Any, value: Any) -> _Codec:
    if key is not str:
        pairs = _items(_row([_codec(key), _codec(value)], tuple), dict)
        return _Codec(lambda mapping: pairs.encode(sorted(mapping.items())), pairs.decode)
    item = _codec(value)

    def decode(data: Any, path: str) -> dict[str, Any]:
        found = _checked(dict, "an object", data, path)
        return {name: item.decode(each, f"{path}.{name}") for name, each in found.items()}

    if value is Any:
        return _Codec(dict, decode)
    return _Codec(lambda data: {name: item.encode(data[name]) for name in sorted(data)}, decode)


def _same(value: Any) -> Any:
    return value


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


def _choice(kind: type[Enum], data: Any, path: str) -> Enum:
    try:
        return kind(data)
    except ValueError:
        raise JsonError(path, " or ".join(str(each.value) for each in kind), data) from None
