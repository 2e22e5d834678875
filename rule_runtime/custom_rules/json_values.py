"""Converts Python values to JSON and back without a change of type, such as tuple or float32.

Only data is stored, so reading it cannot run code.
"""

from __future__ import annotations

import base64
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final

import numpy as np

from hook_layer.format.modes import ModeKeys

__all__ = ["UnkeepableError", "kept", "restored"]

MAX_ARRAY_BYTES: Final = 64 << 10
"""Size of the largest stored array."""

_MAX_DEPTH: Final = 32
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_ARRAY_KINDS: Final = "biufcSUMm"
_FACTORIES: Final[Mapping[str, Callable[[], Any]]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "list": list,
    "dict": dict,
    "set": set,
    "tuple": tuple,
}
_SEQUENCES: Final[Mapping[str, type]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_MAPPINGS: Final[Mapping[str, type]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
}


Refer = Callable[[Any], "list[Any] | None"]
Find = Callable[["list[Any]"], Any]


class UnkeepableError(TypeError):
    """A value that JSON cannot represent exactly."""


def _no_reference(_: Any) -> list[Any] | None:
    return None


def kept(value: Any, refer: Refer = _no_reference, depth: int = 0) -> Any:
    """Return a value as JSON.

    Args:
        value: Numbers, strings, None, bytes, dates, times without or with a fixed time zone,
            containers of Python and `collections`, modes, regular expressions, and numbers and
            arrays of numpy.
        refer: Returns `["reference", ...]` for a value that is stored elsewhere, such as a trial;
            None for any other.
        depth: Nesting depth of the value.

    Raises:
        UnkeepableError: If it has another type, is too large, or contains itself.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > _MAX_DEPTH:
        raise UnkeepableError(f"a value more than {_MAX_DEPTH} levels deep, or one in itself")
    name = kind.__name__
    if _SEQUENCES.get(name) is kind:
        items = [kept(item, refer, depth + 1) for item in value]
        # The order of a set differs between processes.
        return [name, sorted(items, key=repr) if name.endswith("set") else items]
    if _MAPPINGS.get(name) is kind:
        return [name, _pairs(value, refer, depth)]
    if kind is defaultdict:
        return ["defaultdict", _kept_factory(value, refer), _pairs(value, refer, depth)]
    if kind is deque:
        return ["deque", kept(list(value), refer, depth + 1), value.maxlen]
    return refer(value) or _kept_leaf(value)


def restored(data: Any, find: Find | None = None) -> Any:
    """Return the value from the JSON of `kept`."""
    if not isinstance(data, list):
        return data
    name, *rest = data
    if name == "deque":
        return deque(restored(rest[0], find), maxlen=rest[1])
    if name in _SEQUENCES:
        return _SEQUENCES[name](restored(item, find) for item in rest[0])
    if name in _MAPPINGS:
        return _MAPPINGS[name](_items(rest[0], find))
    if name == "defaultdict":
        return defaultdict(_factory(rest[0], find), _items(rest[1], find))
    return find(data) if name == "reference" and find is not None else _LEAVES[name](*rest)


def _kept_factory(value: defaultdict[Any, Any], refer: Refer) -> Any:
    factory = value.default_factory
    name = getattr(factory, "__name__", "")
    if factory is None or _FACTORIES.get(name) is factory:
        return name
    reference = refer(factory)
    if reference is None:
        raise UnkeepableError("a defaultdict whose factory is not a Python type")
    return reference


def _factory(data: Any, find: Find | None) -> Callable[[], Any] | None:
    if isinstance(data, list):
        made: Callable[[], Any] = restored(data, find)
        return made
    return _FACTORIES[data] if data else None


def _pairs(value: Mapping[Any, Any], refer: Refer, depth: int) -> list[list[Any]]:
    return [
        [kept(key, refer, depth + 1), kept(item, refer, depth + 1)] for key, item in value.items()
    ]


def _items(pairs: list[list[Any]], find: Find | None) -> dict[Any, Any]:
    return {restored(key, find): restored(item, find) for key, item in pairs}


def _kept_leaf(value: Any) -> list[Any]:
    if isinstance(value, (np.ndarray, np.generic)) and type(value).__module__ == "numpy":
        return _kept_array(value)
    if isinstance(value, ModeKeys):
        return ["mode", value.name]
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        return ["pattern", value.pattern, int(value.flags) & ~int(re.DEBUG)]
    if type(value) is complex:
        return ["complex", value.real, value.imag]
    if type(value) is bytes:
        return ["bytes", base64.b64encode(value).decode()]
    time = _kept_time(value)
    if time is None:
        raise UnkeepableError(f"a {type(value).__qualname__}")
    return time


def _kept_time(value: Any) -> list[Any] | None:
    kind = type(value)
    if kind is timedelta:
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if kind is date or (kind is datetime and type(value.tzinfo) in (type(None), timezone)):
        return [kind.__name__, value.isoformat()]
    return None


def _kept_array(value: Any) -> list[Any]:
    dtype = value.dtype
    if dtype.kind not in _ARRAY_KINDS or dtype.names:
        raise UnkeepableError(f"an array of {dtype}")
    if value.nbytes > MAX_ARRAY_BYTES:
        raise UnkeepableError(
            f"an array of {value.nbytes} bytes, of {MAX_ARRAY_BYTES} that are allowed"
        )
    data = base64.b64encode(value.tobytes()).decode()
    return [
        "number" if isinstance(value, np.generic) else "array",
        dtype.str,
        list(value.shape),
        data,
    ]


def _array(dtype: str, shape: list[int], data: str) -> Any:
    return np.frombuffer(base64.b64decode(data), dtype=dtype).reshape(shape).copy()


_LEAVES: Final[Mapping[str, Callable[..., Any]]] = {
    "array": _array,
    "number": lambda *parts: _array(*parts)[()],
    "mode": lambda name: ModeKeys[name],
    "pattern": re.compile,
    "complex": complex,
    "bytes": base64.b64decode,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "timedelta": timedelta,
}
