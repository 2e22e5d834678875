"""Converts values for the training API, where every parameter is a string."""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["as_strings", "checked_members", "given"]

_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_BRACKETED: Final = re.compile(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}")


def as_strings(parameters: Mapping[str, object] | None) -> dict[str, str]:
    """Return parameters with every value as a string; None is omitted.

    Lists are joined with commas, as rules and hooks read them.

    Args:
        parameters: The parameters; may be None.

    Raises:
        TypeError: A value is not a text, number, boolean, path, or a list of these.
        ValueError: A list item contains a comma, so it would be read as several.
    """
    return {
        str(key): _text(str(key), value)
        for key, value in (parameters or {}).items()
        if value is not None
    }


def given(**members: Any) -> dict[str, Any]:
    """Return the members that are not None, empty or 0.

    Args:
        members: Members of a JSON object.
    """
    return {key: value for key, value in members.items() if value}


def checked_members(
    what: str, member: Mapping[str, Any], required: Sequence[str], optional: Sequence[str]
) -> None:
    """Refuse JSON with unknown or missing members.

    Args:
        what: Description of the JSON for messages.
        member: The JSON.
        required: Names of required members.
        optional: Names of optional members.

    Raises:
        ValueError: A member is missing or unknown.
    """
    known = (*required, *optional)
    for name in member:
        if name not in known:
            raise ValueError(f"{what} has no member {name!r}; it has {', '.join(known)}")
    for name in required:
        if not member.get(name):
            raise ValueError(f"{what} needs {name}, which {dict(member)!r} lacks")


def _text(key: str, value: object) -> str:
    if not isinstance(value, (list, tuple)):
        return _scalar(key, value)
    items = [_scalar(key, item) for item in value]
    for item in items:
        if len(items) > 1 and _has_comma(item):
            raise ValueError(
                f"{key} has the member {item!r} with a comma, which separates members; "
                "write \\, in a regular expression, or use another name"
            )
    return ",".join(items)


def _scalar(key: str, value: object) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    is_numpy = getattr(value, "shape", None) == ()
    if is_numpy or isinstance(value, numbers.Real):
        return str(value)
    raise TypeError(
        f"{key}={value!r} is of type {type(value).__name__}; give text, a number, True, "
        "False or a list of these. Convert other values to text, e.g. with json.dumps."
    )


def _has_comma(item: str) -> bool:
    """Return whether an unescaped comma is outside of all brackets."""
    left = _ESCAPED.sub("", item)
    while (shorter := _BRACKETED.sub("", left)) != left:
        left = shorter
    return "," in left
