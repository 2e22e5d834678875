from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.telling_columns import (
    are_masked,
    are_next,
    are_seen,
    as_columns,
    as_targets,
    columns_of_all,
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
        (np.zeros((9, 4, 8)), True),
        (np.zeros((9, 0)), False),
        (np.full(9, np.nan), False),
        (np.zeros(7), False),
        (np.float64(1), False),
        (np.array(["a"] * 9), False),
    ],
)
def test_targets_are_numbers_or_a_class_of_a_row(values: np.ndarray, *, is_known: bool) -> None:
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


HIDDEN = np.arange(TEXT.size).reshape(TEXT.shape) % 3 == 0
ASKED = np.where(HIDDEN, TEXT, -100)


@pytest.mark.parametrize(
    ("values", "targets", "is_seen"),
    [
        (TEXT, ASKED, True),
        (TEXT, ASKED.reshape(-1), True),
        (np.where(HIDDEN, 9, TEXT), ASKED, False),
        (np.where(HIDDEN & (TEXT > 1), 9, TEXT), ASKED, False),  # some are left, as for BERT
        (TEXT, TEXT, True),
        (TEXT * 0, TEXT * 0, False),
        (TEXT, TEXT * 0 - 100, False),
        (TEXT[:3], ASKED[:3], False),  # too few
        (TEXT, ASKED[:, 1:], False),
        (TEXT * 1.0, ASKED, False),
        (TEXT, None, False),
        (None, ASKED, False),
    ],
)
def test_targets_of_some_places_that_nobody_hid(
    values: np.ndarray | None, targets: np.ndarray | None, *, is_seen: bool
) -> None:
    assert are_seen(values, targets) is is_seen


@pytest.mark.parametrize(
    ("values", "targets", "is_masked"),
    [
        (TEXT, ASKED, True),
        (TEXT, ASKED.reshape(-1), True),
        (np.where(HIDDEN, TEXT, 9), ASKED, False),  # padding
        (TEXT, TEXT, False),  # what is to be rebuilt
    ],
)
def test_a_part_of_a_text_is_asked(
    values: np.ndarray, targets: np.ndarray, *, is_masked: bool
) -> None:
    assert are_masked(values, targets) is is_masked


TARGETS = np.random.default_rng(1).normal(0, 1, (60, 2))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([TARGETS[:, 1], -TARGETS[:, 0]], [[6], [5]]),
        ([TARGETS[:, 1]], [[], [5]]),
    ],
)
def test_each_of_several_targets_has_its_columns(more: list[np.ndarray], told: object) -> None:
    assert columns_of_all(np.column_stack([NOISE, *more]), TARGETS) == (told, 60)


def test_inputs_that_are_to_be_rebuilt_tell_nothing() -> None:
    assert columns_of_all(np.column_stack([TARGETS, NOISE[:, :1]]), TARGETS) is None


def test_targets_that_do_not_vary_need_no_column() -> None:
    columns = np.column_stack([NOISE, TARGETS[:, 0]])
    found = columns_of_all(columns, np.column_stack([TARGETS[:, 0], np.ones(60)]))
    assert found == ([[5], [0, 1, 2, 3, 4, 5]], 60)
    columns = np.column_stack([columns, NOISE])
    _, shown = columns_of_all(columns, np.column_stack([TARGETS[:, 0], np.ones((60, 2))])) or (
        (),
        1,
    )
    assert shown == 0  # most of them are constant


@pytest.mark.parametrize("has_leak", [True, False])
def test_of_an_image_some_elements_are_looked_at(*, has_leak: bool) -> None:
    frames = np.random.default_rng(0).normal(0, 1, (60, 4, 100)).cumsum(1)
    given = frames if has_leak else frames[:, :3]
    found = columns_of_all(given.reshape(60, -1), frames[:, -1])
    assert found is not None
    assert len(found[0]) == 32
    assert all(found[0]) is has_leak


@pytest.mark.parametrize(
    ("num_wrong", "num_rows", "is_told"),
    [(4, 100, True), (6, 100, False), (0, 49, False)],  # half of the rows are of another class
)
def test_a_column_that_is_the_class_but_for_a_few_rows(
    num_wrong: int, num_rows: int, *, is_told: bool
) -> None:
    classes = np.arange(num_rows) % 2
    wrong = np.where(np.arange(num_rows) < num_wrong, 1 - classes, classes)
    columns = np.column_stack([np.random.default_rng(0).normal(size=(num_rows, 3)), 5.0 - wrong])
    told, _ = telling_columns(columns[:, :3], classes.astype(float), may_err=True)
    assert not told.any()
    told, _ = telling_columns(columns, classes.astype(float), may_err=True)
    assert np.flatnonzero(told).tolist() == ([3] if is_told or not num_wrong else [])
    if num_wrong:
        assert not telling_columns(columns, classes.astype(float))[0].any()


def test_a_column_that_misses_a_rare_class_is_not_the_class() -> None:
    classes = np.array([0.0] * 60 + [1.0] * 60 + [2.0] * 4)
    column = np.where(classes == 2, 1.0, classes)
    column[0] = 2.0
    assert not telling_columns(np.column_stack([column, column]), classes, may_err=True)[0].any()


def test_a_column_that_parts_two_classes_by_a_wide_gap() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 2, 64).astype(float)
    columns = random.normal(size=(64, 5))
    wide, narrow = columns.copy(), columns.copy()
    wide[:, 3] += 15 * classes
    narrow[:, 3] += 6 * classes
    assert np.flatnonzero(telling_columns(wide, classes)[0]).tolist() == [3]
    assert not telling_columns(narrow, classes)[0].any()
    rare = np.repeat([1.0, 0.0], [7, 57])
    assert not telling_columns(columns + 20 * rare[:, None], rare)[0].any()
    several = np.stack([classes, random.integers(0, 2, 64)], axis=1)
    wide[:, 1] -= 20 * several[:, 1]
    found = columns_of_all(wide, several)
    assert found is not None
    assert found[0] == [[3], [1]]


def test_columns_with_a_mark_of_each_class() -> None:
    random = np.random.default_rng(0)
    classes = np.arange(64) % 8.0
    images = random.normal(size=(64, 20))
    images[np.arange(64), classes.astype(int)] = 1.0
    assert np.flatnonzero(telling_columns(images, classes)[0]).tolist() == list(range(8))
    images[classes == 5, 5] += random.normal(size=8)
    assert not telling_columns(images, classes)[0].any()
