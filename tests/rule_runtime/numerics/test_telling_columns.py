from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.telling_columns import (
    are_next,
    as_columns,
    as_targets,
    telling_columns,
)

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.normal(0, 1, (60, 5))
NUMBERS = RANDOM.lognormal(0, 1, 60)
CLASSES = np.arange(60.0) % 3


@pytest.mark.parametrize(
    "form", [np.copy, np.log, np.negative, lambda x: (x - x.mean()) / x.std(), np.float32]
)
def test_a_column_that_rises_or_falls_with_the_targets(
    form: Callable[[np.ndarray], np.ndarray],
) -> None:
    columns = np.column_stack([NOISE, form(NUMBERS)])
    told, rows = telling_columns(columns.astype(np.float64), NUMBERS)
    assert np.flatnonzero(told).tolist() == [5]
    assert rows == 60


@pytest.mark.parametrize("column", [NUMBERS + 0.1 * NOISE[:, 0], np.roll(NUMBERS, 1), 0 * NUMBERS])
def test_a_column_that_knows_nearly_as_much(column: np.ndarray) -> None:
    assert not telling_columns(np.column_stack([NOISE, column]), NUMBERS)[0].any()


def test_the_step_before_of_a_smooth_series_is_no_leak() -> None:
    series = np.cumsum(RANDOM.normal(0, 1, 200))
    windows = np.lib.stride_tricks.sliding_window_view(series, 9)
    assert not telling_columns(windows[:, :-1], windows[:, -1])[0].any()
    assert telling_columns(windows, windows[:, -1])[0].tolist() == [False] * 8 + [True]


def test_columns_that_tell_classes_together() -> None:
    one_hot = np.eye(3)[CLASSES.astype(int)]
    told, rows = telling_columns(np.column_stack([NOISE, one_hot]), CLASSES)
    assert np.flatnonzero(told).tolist() == [5, 6, 7]
    assert rows == 57  # the first row of each class shows nothing


def test_a_column_that_tells_some_of_the_classes_only() -> None:
    assert not telling_columns(np.column_stack([NOISE, CLASSES == 1]), CLASSES)[0].any()


def test_targets_that_are_all_equal_are_told_by_nothing() -> None:
    told, rows = telling_columns(NOISE, np.ones(60))
    assert not told.any()
    assert rows == 0


@given(st.integers(8, 40), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_noise_tells_no_numbers(rows: int, columns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    told, _ = telling_columns(random.normal(0, 1, (rows, columns)), random.normal(0, 1, rows))
    assert not told.any() or rows < 12


@pytest.mark.parametrize(
    ("values", "is_known"),
    [
        (np.zeros((9, 1)), True),
        (np.eye(9), True),
        (np.zeros((9, 3)), False),  # as what an autoencoder is to give back
        (np.full(9, np.nan), False),
        (np.zeros(7), False),
        (np.float64(1), False),
        (np.array(["a"] * 9), False),
    ],
)
def test_targets_are_one_number_or_class_of_a_row(values: np.ndarray, *, is_known: bool) -> None:
    assert (as_targets(values) is not None) is is_known


@pytest.mark.parametrize(
    ("shape", "is_known"), [((9, 2), True), ((9, 2, 3), True), ((9, 1), False), ((8, 2), False)]
)
def test_columns_are_of_several_elements_for_each_row(
    shape: tuple[int, ...], *, is_known: bool
) -> None:
    assert (as_columns(np.zeros(shape), 9) is not None) is is_known


TEXT = RANDOM.integers(0, 9, (8, 13))


@pytest.mark.parametrize(
    ("values", "targets", "is_next"),
    [
        (TEXT[:, :-1], TEXT[:, 1:], True),
        (TEXT[:, :-1], TEXT[:, 1:].reshape(-1), True),
        (TEXT[:, :-1].astype(np.int32), np.roll(TEXT[:, :-1], -1, 1), True),
        (TEXT[:, :-1], TEXT[:, :-1], False),
        (TEXT[:, 1:], TEXT[:, :-1], False),
        (TEXT, TEXT[:, 1:], False),
        (TEXT[:, :-1] * 1.0, TEXT[:, 1:] * 1.0, False),
        (TEXT[:, :1], TEXT[:, 1:2], False),
        (TEXT * 0, TEXT * 0, False),
        (TEXT, None, False),
        (None, TEXT, False),
    ],
)
def test_targets_that_come_next_in_a_sequence(
    values: np.ndarray | None, targets: np.ndarray | None, *, is_next: bool
) -> None:
    assert are_next(values, targets) is is_next
