"""Why steps were not evaluated: each kind of reason with how often it was given, a few at most."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MAX_REASONS", "Reason", "commonest", "counted_in"]

MAX_REASONS: Final = 6
"""Kinds that are kept; a further one takes the place, and the count, of the least frequent."""

_MAX_TEXT: Final = 400
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Reason:
    """Why some steps of one mode were not evaluated.

    Attributes:
        text: The reason of the latest step; earlier steps can have other numbers in it.
        mode: The mode of the steps; empty for steps that could not be shown to the rule.
        count: How many they were.
    """

    text: str
    mode: str
    count: int

    def to_json(self) -> list[Any]:
        """Return the reason as JSON."""
        return [self.text, self.mode, self.count]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Reason:
        """Return the reason that `to_json` wrote.

        Args:
            data: The decoded JSON array.
        """
        text, mode, count = data
        return cls(str(text), str(mode), int(count))


def counted_in(reasons: Sequence[Reason], text: str, mode: str) -> tuple[Reason, ...]:
    """Return the reasons with one more step counted.

    Reasons that differ by numbers only are of one kind. Where there are more kinds than are kept,
    those are right that were given at more than one of `MAX_REASONS` steps (space-saving counts,
    Metwally et al. 2005).

    Args:
        reasons: The reasons so far.
        text: Why the step was not evaluated.
        mode: Its mode, empty if it is not known.
    """
    text = text[:_MAX_TEXT]
    kind = _NUMBER.sub("", text), mode
    others = [each for each in reasons if (_NUMBER.sub("", each.text), each.mode) != kind]
    count = sum(each.count for each in reasons) - sum(each.count for each in others)
    if len(others) >= MAX_REASONS:
        least = min(others, key=lambda each: each.count)
        others.remove(least)
        count = least.count
    return (*others, Reason(text, mode, count + 1))


def commonest(reasons: Sequence[Reason]) -> Reason | None:
    """Return the reason of most steps, of several the one that came last; None without any.

    Args:
        reasons: The reasons.
    """
    return max(reversed(reasons), key=lambda each: each.count, default=None)
