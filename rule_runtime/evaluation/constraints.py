"""What the annotations of a rule's parameters may demand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = [
    "AtLeast",
    "AtMost",
    "Constraint",
    "GreaterThan",
    "LessThan",
    "Regex",
    "Unit",
]


@dataclass(frozen=True)
class GreaterThan:
    """The value must be greater than a bound."""

    bound: float

    def accepts(self, value: Any) -> bool:
        """Tell whether a value fulfils the condition."""
        return bool(value > self.bound)

    def __str__(self) -> str:
        return f"greater than {self.bound:g}"


@dataclass(frozen=True)
class AtLeast:
    """The value must not be less than a bound."""

    bound: float

    def accepts(self, value: Any) -> bool:
        """Tell whether a value fulfils the condition."""
        return bool(value >= self.bound)

    def __str__(self) -> str:
        return f"at least {self.bound:g}"


@dataclass(frozen=True)
class LessThan:
    """The value must be less than a bound."""

    bound: float

    def accepts(self, value: Any) -> bool:
        """Tell whether a value fulfils the condition."""
        return bool(value < self.bound)

    def __str__(self) -> str:
        return f"less than {self.bound:g}"


@dataclass(frozen=True)
class AtMost:
    """The value must not be greater than a bound."""

    bound: float

    def accepts(self, value: Any) -> bool:
        """Tell whether a value fulfils the condition."""
        return bool(value <= self.bound)

    def __str__(self) -> str:
        return f"at most {self.bound:g}"


@dataclass(frozen=True)
class Regex:
    """Each value must be a regular expression; commas inside brackets do not part a list."""

    def accepts(self, value: Any) -> bool:
        """Tell whether a value, or every one of a list, compiles."""
        try:
            for pattern in (value,) if isinstance(value, str) else value:
                re.compile(pattern)
        except re.error:
            return False
        return True

    def __str__(self) -> str:
        return "a regular expression"


@dataclass(frozen=True)
class Unit:
    """What the value is counted in, e.g. `%` or `steps`; for people."""

    name: str


Constraint = GreaterThan | AtLeast | LessThan | AtMost | Regex
"""A condition that a parameter's value must fulfil."""
