"""Values as the training API takes them: every parameter is a string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["as_strings", "given"]


def as_strings(parameters: Mapping[str, object] | None) -> dict[str, str]:
    """Return parameters with every value as a string; None stays out.

    Lists become their members with commas between, as rules and hooks read them.

    Args:
        parameters: The parameters; None for none.
    """
    return {
        str(key): _text(value) for key, value in (parameters or {}).items() if value is not None
    }


def given(**members: Any) -> dict[str, Any]:
    """Return the members that have a value that says something: not None, empty or 0.

    Args:
        members: Members of a JSON object.
    """
    return {key: value for key, value in members.items() if value}


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
