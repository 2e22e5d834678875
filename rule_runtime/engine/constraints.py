"""Conditions and units in the annotations of a rule's parameters."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from rule_runtime.trial.name_pattern import PatternError, check_pattern

__all__ = ["AtLeast", "AtMost", "Constraint", "GreaterThan", "LessThan", "Regex", "Unit"]


@dataclass(frozen=True)
class _Bound:
    """A condition on a number.

    Raises:
        TypeError: The bound is not a number.
    """

    bound: float

    is_met: ClassVar[Callable[[Any, float], Any]]
    words: ClassVar[str]

    def __post_init__(self) -> None:
        if isinstance(self.bound, bool) or not isinstance(self.bound, (int, float)):
            raise TypeError(f"{type(self).__name__}({self.bound!r}): the bound must be a number")

    def problem(self, value: Any) -> str | None:
        """Return None if a value meets the condition."""
        is_met: Callable[[Any, float], Any] = type(self).is_met
        return None if is_met(value, self.bound) else ""

    def __str__(self) -> str:
        return f"{self.words} {self.bound:g}"


class GreaterThan(_Bound):
    """The value must be greater than a bound."""

    is_met, words = operator.gt, "greater than"


class AtLeast(_Bound):
    """The value must not be less than a bound."""

    is_met, words = operator.ge, "at least"


class LessThan(_Bound):
    """The value must be less than a bound."""

    is_met, words = operator.lt, "less than"


class AtMost(_Bound):
    """The value must not be greater than a bound."""

    is_met, words = operator.le, "at most"


@dataclass(frozen=True)
class Regex:
    """The value, or each of several, must be a regular expression with bounded matching time.

    Commas inside its brackets do not separate values.
    """

    def problem(self, value: Any) -> str | None:
        """Return the problem of a value, or of the first wrong one of several; None without any."""
        try:
            for pattern in (value,) if isinstance(value, str) else value:
                check_pattern(pattern)
        except PatternError as error:
            return str(error)
        return None

    def __str__(self) -> str:
        return "a regular expression"


@dataclass(frozen=True)
class Unit:
    """The unit of the value, such as `%` or `steps`; for display only."""

    name: str


Constraint = GreaterThan | AtLeast | LessThan | AtMost | Regex
"""A condition on a parameter's value."""
