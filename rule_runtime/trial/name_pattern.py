"""Matches regular expressions from files against tensor names in bounded time.

Python's `re` has no timeout and backtracks: `(a|aa)+$` on forty letters `a` and a `!` takes almost
forever. So a bound on the number of ways to match is computed from the parse tree before a pattern
is used. A choice multiplies the number, and a repetition multiplies it by the length of the name. A
repetition of something ambiguous is refused. Patterns that users type in their own process are not
checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from rule_runtime.trial.pattern_complexity import AmbiguousPatternError, Ways, ways_of

__all__ = ["MAX_NAME_LENGTH", "MAX_PATTERN_LENGTH", "NameMatcher", "PatternError", "check_pattern"]

MAX_PATTERN_LENGTH: Final = 256
"""Longest pattern; also the limit of the training API."""

MAX_NAME_LENGTH: Final = 512
"""Longest tensor name that patterns can match; longer names must be given in full."""

_TYPICAL_NAME_LENGTH: Final = 100
_MAX_WAYS: Final = 1e7
"""Ways to match a name of that length; `re` needs about 10 ns for each."""

_ALL_WAYS: Final = 1e9
"""Limit for all patterns and names of one matcher."""

_WAYS_OF_A_PATTERN: Final = 1e5
"""Cost of analysing a pattern, in the same unit."""


class PatternError(ValueError):
    """A pattern from a file that is invalid or could take too long."""


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that no matcher accepts.

    Raises:
        PatternError: If it is too long, invalid, or could take too long on some name.
    """
    _analysed(pattern)


class NameMatcher:
    """Searches for patterns in tensor names with a bound on the total time; caches results."""

    def __init__(self) -> None:
        self._ways_left = _ALL_WAYS
        self._found: dict[str, dict[str, bool]] = {}

    def found_in(self, pattern: str, names: Iterable[str]) -> set[str]:
        """Return the names in which a pattern is found.

        Raises:
            PatternError: If the pattern is refused, or all patterns together could take too long.
        """
        known = self._found.get(pattern)
        if known is None:
            self._spend(_WAYS_OF_A_PATTERN, pattern)
            compiled, _ = _analysed(pattern)
            known = self._found[pattern] = {}
        wanted = [name for name in names if len(name) <= MAX_NAME_LENGTH]
        new = [name for name in wanted if name not in known]
        if new:
            compiled, ways = _analysed(pattern)
            self._spend(sum(ways.at(len(name)) for name in new), pattern)
            known.update((name, compiled.search(name) is not None) for name in new)
        return {name for name in wanted if known[name]}

    def _spend(self, ways: float, pattern: str) -> None:
        if ways > self._ways_left:
            raise _refusal(
                pattern, "searching for it could take too long on names as long as these"
            )
        self._ways_left -= ways


@lru_cache(maxsize=256)
def _analysed(pattern: str) -> tuple[re.Pattern[str], Ways]:
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise _refusal(pattern, f"it is longer than {MAX_PATTERN_LENGTH} characters")
    try:
        compiled = re.compile(pattern)
        ways = ways_of(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _refusal(pattern, f"it is not valid, {error}") from None
    except AmbiguousPatternError as error:
        raise _refusal(pattern, str(error)) from None
    if ways.at(_TYPICAL_NAME_LENGTH) > _MAX_WAYS:
        raise _refusal(pattern, "too many repetitions and choices follow one another")
    return compiled, ways


def _refusal(pattern: str, reason: str) -> PatternError:
    return PatternError(f"the regular expression {pattern[:80]!r} is refused: {reason}")
