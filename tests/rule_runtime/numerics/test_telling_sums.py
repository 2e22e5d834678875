"""Columns that make up a number."""

from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.numerics.telling_sums import telling_sum

RANDOM = np.random.default_rng(0)
COLUMNS = RANDOM.normal(size=(64, 6))
ALONE = np.random.default_rng(1).normal(size=64)


@pytest.mark.parametrize(
    ("targets", "columns", "is_exact"),
    [
        (COLUMNS[:, 1] + COLUMNS[:, 4], [1, 4], True),
        (3 - 2 * COLUMNS[:, 0] + COLUMNS[:, 2] / 5 - COLUMNS[:, 5], [0, 2, 5], True),
        (COLUMNS[:, 3], [3], True),
        (np.exp(COLUMNS[:, 3]), [3], False),  # ranks tell it
        (COLUMNS[:, :4].sum(1), [], False),  # more than three parts
        (COLUMNS[:, 3] + 0.5 * ALONE, [], False),
        (ALONE, [], False),
    ],
)
def test_parts_are_found_and_what_is_no_sum_is_not(
    targets: np.ndarray, columns: list[int], *, is_exact: bool
) -> None:
    found = telling_sum(COLUMNS, targets)
    assert found is not None
    assert (sorted(found.columns), found.is_exact) == (columns, is_exact)


@pytest.mark.parametrize(
    ("columns", "targets"),
    [
        (COLUMNS[:, :4], COLUMNS[:, 0]),  # too few columns
        (COLUMNS[:10], COLUMNS[:10, 0]),  # too few rows
        (COLUMNS, np.sort(COLUMNS[:, 0])),  # rises with the rows
        (COLUMNS.astype(np.int64), COLUMNS[:, 0]),
        (COLUMNS, (COLUMNS[:, 0] > 0).astype(float)),  # classes
    ],
)
def test_what_tells_nothing_is_not_judged(columns: np.ndarray, targets: np.ndarray) -> None:
    assert telling_sum(columns, targets) is None


def test_what_the_other_columns_tell_too_is_no_leak() -> None:
    smooth = np.sin(RANDOM.uniform(0, 6, 64)[:, None] + 0.01 * np.arange(6))
    found = telling_sum(smooth, smooth[:, 5])
    assert found is not None
    assert not found.columns
