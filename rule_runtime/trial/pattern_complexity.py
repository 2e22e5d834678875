"""Bounds the number of ways in which a regular expression can match a text."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations, takewhile
from typing import Any, Final

__all__ = ["AmbiguousPatternError", "Ways", "ways_of"]

# `re` uses this parser itself; Python 3.11 renamed its module.
_parser: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

_MANY: Final = 8
"""More repetitions than this count as unlimited."""

_Node = tuple[Any, Any]


class AmbiguousPatternError(ValueError):
    """A pattern with exponentially many ways to match, or none that can be counted."""


@dataclass(frozen=True)
class Ways:
    """A bound: `factor` times the number of ways to choose `degree` positions in order.

    Attributes:
        factor: Constant factor, independent of the text.
        degree: Number of repetitions that may end anywhere.
    """

    factor: float = 1.0
    degree: int = 0

    @property
    def is_one(self) -> bool:
        """True if there is at most one way."""
        return self.factor <= 1 and self.degree == 0

    def __mul__(self, other: Ways) -> Ways:
        return Ways(self.factor * other.factor, self.degree + other.degree)

    def __add__(self, other: Ways) -> Ways:
        return Ways(self.factor + other.factor, max(self.degree, other.degree))

    def at(self, length: int) -> float:
        """Return the bound for a search, which can begin anywhere in a text."""
        choices = self.degree + 1
        return self.factor * (length + 1.0) ** choices / math.factorial(choices)


def ways_of(pattern: str) -> Ways:
    """Return the bound on the ways in which a pattern can match.

    Raises:
        AmbiguousPatternError: If no power of the text's length is a bound.
    """
    return _of_sequence(_parser.parse(pattern), is_last=True)


def _of_sequence(nodes: Sequence[_Node], *, is_last: bool) -> Ways:
    """Return the bound for a sequence of nodes; `is_last` if nothing follows them."""
    items = list(nodes)
    total = Ways()
    for at, (op, argument) in enumerate(items):
        ways = _of_node(str(op), argument, is_last=is_last and at == len(items) - 1)
        if ways.degree and "REPEAT" in str(op):
            # A repetition can end only where the next literal occurs: at most at every sixth place
            # for `weight`.
            ways *= Ways(1 / _period(items[at + 1 :]))
        total *= ways
    return total


def _of_node(op: str, argument: Any, *, is_last: bool) -> Ways:
    if op in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"):
        return Ways()
    if op == "SUBPATTERN":
        return _of_sequence(argument[-1], is_last=is_last)
    if op == "BRANCH":
        return _of_branches(argument[1], is_last=is_last)
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _of_repeat(*argument, is_last=is_last)
    if op in ("ASSERT", "ASSERT_NOT"):
        return _of_sequence(argument[1], is_last=False)
    if op == "ATOMIC_GROUP":
        return _of_sequence(argument, is_last=False)
    raise AmbiguousPatternError("it refers back to what a group matched")


def _of_branches(branches: Sequence[Any], *, is_last: bool) -> Ways:
    each = [_of_sequence(branch, is_last=is_last) for branch in branches]
    firsts = [_first_characters(branch) for branch in branches]
    is_exclusive = all(
        a is not None and b is not None and a.isdisjoint(b) for a, b in combinations(firsts, 2)
    )
    if is_exclusive:
        return Ways(max(ways.factor for ways in each), max(ways.degree for ways in each))
    return sum(each[1:], start=each[0])


def _of_repeat(low: int, high: int, body: Any, *, is_last: bool) -> Ways:
    ways = _of_sequence(body, is_last=False)
    if int(high) <= _MANY:
        total = Ways(float(int(high) - int(low) + 1))
        for _ in range(int(high)):
            total *= ways
        return total
    if not ways.is_one or body.getwidth()[0] == 0:
        raise AmbiguousPatternError(
            "what it repeats without limit can match the same text in several ways"
        )
    # The end of the pattern matches at once; longer repetitions are not tried.
    return Ways() if is_last or low == high else Ways(1.0, 1)


def _first_characters(branch: Sequence[_Node]) -> frozenset[str] | None:
    """Return the possible first characters of a branch; None if there are too many."""
    if not len(branch):
        return None
    op, argument = branch[0]
    members: Iterable[_Node] = argument if str(op) == "IN" else [(op, argument)]
    characters: set[str] = set()
    for kind, value in members:
        if str(kind) == "LITERAL":
            characters.add(chr(value).casefold())
        elif str(kind) == "RANGE" and value[1] - value[0] <= sys.maxunicode >> 8:
            characters.update(chr(code).casefold() for code in range(value[0], value[1] + 1))
        else:
            return None
    return frozenset(characters)


def _period(nodes: Sequence[_Node]) -> int:
    """Return the least distance between two occurrences of the first literal."""
    text = [argument for op, argument in takewhile(lambda node: str(node[0]) == "LITERAL", nodes)]
    return next((p for p in range(1, len(text)) if text[p:] == text[:-p]), max(len(text), 1))
