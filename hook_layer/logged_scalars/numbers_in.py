"""Finds the numbers among logged values."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

__all__ = ["numbers_in"]

_MAX_DEPTH: Final = 4
"""Levels of nested dictionaries that are read; a dictionary may contain itself."""


def numbers_in(values: Mapping[str, Any], depth: int = _MAX_DEPTH) -> dict[str, float]:
    """Return the numbers of logged values, with names of nested ones such as `eval/loss`.

    Texts, histograms, images and tensors of several elements are left out.
    """
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            nested = numbers_in(value, depth - 1) if depth > 1 else {}
            found.update({f"{name}/{key}": number for key, number in nested.items()})
        elif (number := _number(value)) is not None:
            found[str(name)] = number
    return found


def _number(value: Any) -> float | None:
    """Return a number, or the element of an array or tensor that has one; None for others."""
    if type(value) is float:  # the usual case
        return value
    if isinstance(value, Real):
        return float(value)
    shape = getattr(value, "shape", None)
    if shape is None or isinstance(value, str) or any(length != 1 for length in shape):
        return None
    item = value.item() if hasattr(value, "item") else float(value)
    return float(item) if isinstance(item, Real) else None
