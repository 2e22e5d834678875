"""Tests that are tables: one row per case, with a sentence that says what it shows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

__all__ = ["table"]


def table(names: str, rows: Mapping[str, object]) -> pytest.MarkDecorator:
    """Run a test once per row.

    Args:
        names: Argument of the test, or several, separated by ", ".
        rows: Values of the arguments, by what the row shows.
    """
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))
