"""Parses values of a configuration in the forms of people and platforms: `10`, `"10"`, `"True"`.

SageMaker passes every parameter as a string. Each function gets the name of the value, and raises
`HookConfigurationError` with name, value and allowed values.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from hook_layer.errors import HookConfigurationError, nearest

__all__ = [
    "as_choice",
    "as_flag",
    "as_integer",
    "as_number",
    "as_object",
    "as_optional_number",
    "as_text",
    "as_texts",
    "known_keys",
    "load_json",
    "refuse",
    "split_at_commas",
]

_FLAGS: Final = {"true": True, "false": False, "1": True, "0": False}
_NONE: Final = ("none", "null")
_LONGEST_SHOWN: Final = 120
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_shown: Final = reprlib.Repr()  # short, whatever the value
_shown.maxstring = _LONGEST_SHOWN


def refuse(name: str, value: object, allowed: str) -> NoReturn:
    """Reject a value.

    Raises:
        HookConfigurationError: Always.
    """
    raise HookConfigurationError(f"{name}={_shown.repr(value)} {allowed}")


def as_flag(name: str, value: object) -> bool:
    """Return a boolean: `true`, `"True"`, `1`, `"0"`, ..."""
    flag = _FLAGS.get(str(value).strip().lower()) if isinstance(value, (bool, int, str)) else None
    if flag is None:
        refuse(name, value, "must be true or false")
    return flag


def as_integer(name: str, value: object, *, minimum: int) -> int:
    """Return an integer: `10`, `10.0` or `"10"`."""
    try:
        number = int(value)  # type: ignore[call-overload]
        is_whole = isinstance(value, str) or bool(number == value)
    except (TypeError, ValueError, OverflowError):  # also for strings with thousands of digits
        number, is_whole = minimum, False
    if not is_whole or isinstance(value, bool) or number < minimum:
        refuse(name, value, f"must be an integer of at least {minimum}")
    return int(number)


def as_number(name: str, value: object) -> float:
    """Return a finite number: `2.5`, `"2.5"`."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        refuse(name, value, "must be a number")
    return number


def as_optional_number(name: str, value: object) -> float | None:
    """Return a finite number, or None: `2.5`, `"2.5"`, `null`, `"none"`."""
    is_none = value is None or (isinstance(value, str) and value.strip().lower() in _NONE)
    return None if is_none else as_number(name, value)


def as_text(name: str, value: object) -> str:
    """Return a non-empty, printable string without surrounding white space."""
    if not isinstance(value, str) or not value.strip() or not value.strip().isprintable():
        refuse(name, value, "must be a text")
    return value.strip()


def as_choice(name: str, value: object, valid: Iterable[str]) -> str:
    """Return one of the valid strings."""
    names = tuple(valid)
    if value not in names:
        refuse(name, value, f"is unknown: {nearest(str(value)[:_LONGEST_SHOWN], names)}")
    return str(value)


def as_texts(name: str, value: object) -> list[str]:
    """Return strings: `["a", "b"]`, or `"a,b"`, which is split at commas."""
    if isinstance(value, str):
        return split_at_commas(value)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        refuse(name, value, 'must be a list of texts, e.g. ["a", "b"], or "a,b"')
    return list(value)


def load_json(name: str, text: object) -> Any:
    """Parse JSON text."""
    try:
        return json.loads(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError) as error:
        refuse(name, text, f"is not valid JSON: {error}")


def as_object(name: str, value: object) -> Mapping[str, Any]:
    """Return a JSON object; null is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        refuse(name, value, "must be a JSON object")
    return value


def known_keys(name: str, members: Mapping[str, Any], valid: Iterable[str]) -> dict[str, Any]:
    """Return the members that are not null; reject unknown keys."""
    names = tuple(valid)
    for key, value in members.items():
        if key not in names:
            hint = nearest(str(key), names)
            refuse(f"{name}{str(key)[:_LONGEST_SHOWN]}", value, f"has an unknown key: {hint}")
    return {key: value for key, value in members.items() if value is not None}


def split_at_commas(text: str) -> list[str]:
    r"""Split at commas, except in brackets and after a backslash, as in `w{1,2}` or `[a,b]`.

    Surrounding white space and empty parts are removed. If brackets are unbalanced, every comma
    splits.
    """
    parts: list[str] = []
    open_brackets: list[str] = []
    start, is_escaped = 0, False
    for position, letter in enumerate(text):
        if is_escaped or letter == "\\":
            is_escaped = not is_escaped
        elif open_brackets and letter == open_brackets[-1]:
            open_brackets.pop()
        elif letter in _CLOSING and open_brackets[-1:] != ["]"]:
            open_brackets.append(_CLOSING[letter])
        elif letter == "," and not open_brackets:
            parts.append(text[start:position])
            start = position + 1
    parts = text.split(",") if open_brackets else [*parts, text[start:]]
    return [part.strip() for part in parts if part.strip()]
