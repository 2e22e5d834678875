"""Comparing what two readers, or two writers, say."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

__all__ = ["EQUAL_VALUES", "assert_same"]

EQUAL_VALUES: Final[Counter[str]] = Counter()
"""How many values both readers found equal, by the hook and its client; printed at the end."""


def assert_same(ours: dict[str, Any], theirs: dict[str, Any], *, what: str = "") -> None:
    """Compare two readers' answers, but for `all`: the original finds nothing in it by default.

    Args:
        ours: The answers of our reader.
        theirs: Those of the original's.
        what: Which hook wrote the values, to count them in `EQUAL_VALUES`.
    """
    assert ours["collections"]["all"].pop("tensor_names") == ours["names"]
    theirs["collections"]["all"].pop("tensor_names")
    assert ours == theirs
    if what:
        steps = (step for each in ours["tensors"].values() for step in each["values"].values())
        EQUAL_VALUES[what] += sum(map(len, steps))
