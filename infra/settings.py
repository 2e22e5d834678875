"""Readers of single settings: convert a user's text or JSON into a validated value.

Every reader returns the validated value, or raises `SettingError` (for several mistakes:
`SeveralMistakesError`) with the allowed values. Values from `-c key=value` are text; values from
cdk.json are JSON.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = [
    "Reader",
    "SettingError",
    "SeveralMistakesError",
    "from_text",
    "nearest_name",
    "read_choice",
    "read_flag",
    "read_list",
    "read_names",
    "read_number",
    "read_text",
]

Reader = Callable[[Any], Any]


class SettingError(ValueError):
    """One setting has an invalid value.

    Attributes:
        allowed: Description of the allowed values.
        nearest: The closest valid name, if the value looks like a misspelled one.
        part: The invalid part of the setting, e.g. `.VanishingGradient.threshold`.
        value: The invalid value, if only a part of the setting is invalid.
    """

    def __init__(
        self, allowed: str, *, nearest: str | None = None, part: str = "", value: Any = None
    ) -> None:
        super().__init__(f"allowed: {allowed}")
        self.allowed = allowed
        self.nearest = nearest
        self.part = part
        self.value = value


class SeveralMistakesError(ValueError):
    """Several parts of one setting have invalid values."""

    def __init__(self, errors: list[SettingError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the valid name that is closest to a misspelled one; None if none is close."""
    by_folded = {valid.casefold(): valid for valid in names}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def read_choice(*choices: str) -> Reader:
    """Return a reader that accepts one of the choices."""

    def read(value: Any) -> str:
        if value in choices:
            return str(value)
        raise SettingError(", ".join(choices), nearest=nearest_name(str(value), choices))

    return read


def read_number(low: int, high: int, *, only: tuple[int, ...] | None = None) -> Reader:
    """Return a reader that accepts whole numbers in a range, or only the listed ones."""

    def read(value: Any) -> int:
        allowed = ", ".join(map(str, only)) if only else f"a whole number from {low} to {high}"
        if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,9}", str(value)):
            raise SettingError(allowed)
        number = int(value)
        if only and number not in only:
            raise SettingError(allowed, nearest=str(min(only, key=lambda n: abs(n - number))))
        if not low <= number <= high:
            raise SettingError(allowed)
        return number

    return read


def read_text(pattern: str, allowed: str) -> Reader:
    """Return a reader that accepts text that matches the whole pattern."""

    def read(value: Any) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise SettingError(allowed)

    return read


def read_list(pattern: str, allowed: str, *, at_least: int = 0) -> Reader:
    """Return a reader of lists of distinct matching texts, in the format of `read_names`."""

    def read(value: Any) -> tuple[str, ...]:
        texts = read_names(value)
        errors = [
            SettingError(allowed, value=text) for text in texts if not re.fullmatch(pattern, text)
        ]
        errors += [
            SettingError("each once", value=text)
            for text in sorted({text for text in texts if texts.count(text) > 1})
        ]
        if len(texts) < at_least:
            errors.append(SettingError(f"at least {at_least} of {allowed}"))
        if errors:
            raise SeveralMistakesError(errors)
        return texts

    return read


def read_flag(value: Any) -> bool:
    """Read true or false, as JSON or as text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise SettingError("true or false")


def read_names(value: Any) -> tuple[str, ...]:
    """Read a list of names: a JSON list, its text, or comma-separated names."""
    if isinstance(value, str):
        value = from_text(value)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SettingError("a list of names, or names separated by commas")
    return tuple(value)


def from_text(text: str) -> Any:
    """Parse typed text: JSON, or comma-separated names."""
    try:
        return json.loads(text)
    except ValueError:
        return [name.strip() for name in text.split(",") if name.strip()]
