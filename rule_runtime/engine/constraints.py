"""What the annotations of a rule's parameters may demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rule_runtime.trial.name_pattern import PatternError, check_pattern

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
class _Bound:
    """A condition on a number.

    Raises:
        TypeError: The bound is no number.
    """

    bound: float

    def __post_init__(self) -> None:
        if isinstance(self.bound, bool) or not isinstance(self.bound, (int, float)):
            raise TypeError(f"{type(self).__name__}({self.bound!r}): the bound must be a number")


@dataclass(frozen=True)
class GreaterThan(_Bound):
    """The value must be greater than a bound."""

    def accepts(self, value: Any) -> bool:
        """Return whether a value fulfils the condition."""
        return bool(value > self.bound)

    def __str__(self) -> str:
        return f"greater than {self.bound:g}"


@dataclass(frozen=True)
class AtLeast(_Bound):
    """The value must not be less than a bound."""

    def accepts(self, value: Any) -> bool:
        """Return whether a value fulfils the condition."""
        return bool(value >= self.bound)

    def __str__(self) -> str:
        return f"at least {self.bound:g}"


@dataclass(frozen=True)
class LessThan(_Bound):
    """The value must be less than a bound."""

    def accepts(self, value: Any) -> bool:
        """Return whether a value fulfils the condition."""
        return bool(value < self.bound)

    def __str__(self) -> str:
        return f"less than {self.bound:g}"


@dataclass(frozen=True)
class AtMost(_Bound):
    """The value must not be greater than a bound."""

    def accepts(self, value: Any) -> bool:
        """Return whether a value fulfils the condition."""
        return bool(value <= self.bound)

    def __str__(self) -> str:
        return f"at most {self.bound:g}"


@dataclass(frozen=True)
class Regex:
    """Each value must be a regular expression; commas inside brackets do not part a list.

    It must be one that cannot take forever either: a job's own configuration may name it.
    """

    def accepts(self, value: Any) -> bool:
        """Return whether a value, or every one of a list, is valid and bounded in time."""
        return not self.problem(value)

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value, or with the first bad one of a list; else ""."""
        try:
            for pattern in (value,) if isinstance(value, str) else value:
                check_pattern(pattern)
        except PatternError as error:
            return str(error)
        return ""

    def __str__(self) -> str:
        return "a regular expression"


@dataclass(frozen=True)
class Unit:
    """What the value is counted in, e.g. `%` or `steps`; for people."""

    name: str


Constraint = GreaterThan | AtLeast | LessThan | AtMost | Regex
"""A condition that a parameter's value must fulfil."""
