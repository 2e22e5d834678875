"""Types of parameters in words: what a value must be."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal

__all__ = ["choices_of", "type_in_words"]

_TYPE_NAMES: Final[Mapping[Any, tuple[str, str]]] = {
    bool: ("true or false", "true or false values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
}
"""What one value of a type is called, and several."""


def type_in_words(kind: Any, *, several: bool = False) -> str:
    """Return what values of a type are called, such as `a number, or none`.

    Args:
        kind: The type, as annotations name it.
        several: True for what several values are called.
    """
    if kind in _TYPE_NAMES:
        return _TYPE_NAMES[kind][several]
    inner = _without_none(kind)
    if inner is not kind:
        return f"{type_in_words(inner)}, or none"
    if typing.get_origin(kind) is tuple:
        items = type_in_words(typing.get_args(kind)[0], several=True)
        return f"{items} with commas between"
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return ", ".join(choices_of(kind)) or name


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the values of a parameter that takes one of a few, else nothing.

    Args:
        kind: The type, as annotations name it.
    """
    kind = _without_none(kind)
    return tuple(map(str, typing.get_args(kind))) if typing.get_origin(kind) is Literal else ()


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    (inner,) = (part for part in typing.get_args(kind) if part is not type(None))
    return inner
