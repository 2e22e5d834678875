from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.telling_columns import (
    TOGETHER,
    Told,
    as_columns,
    as_targets,
    columns_of_all,
    telling_columns,
)

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.normal(0, 1, (60, 5))
NUMBERS = RANDOM.lognormal(0, 1, 60)
CLASSES = np.arange(60.0) % 3


def told_of(columns: np.ndarray, targets: np.ndarray) -> list[int]:
    """Return the columns that tell the targets, together or a class of them."""
    told = telling_columns(columns, targets, may_part=True)
    is_told = told is not None and not told.is_near
    return sorted({at for of in told.columns.values() for at in of}) if told and is_told else []


def shown(told: Told | None) -> tuple[dict[str, list[int]], int] | None:
    """Return the columns that tell a target, and how many rows show it."""
    return told and (dict(told.columns), told.num_rows)


def rows_of(columns: np.ndarray, targets: np.ndarray) -> int:
    told = telling_columns(columns, targets)
    return told.num_rows if told else 0


@pytest.mark.parametrize(
    "form", [np.copy, np.log, np.negative, lambda x: (x - x.mean()) / x.std(), np.float32]
)
def test_a_column_that_rises_or_falls_with_the_targets(
    form: Callable[[np.ndarray], np.ndarray],
) -> None:
    columns = np.column_stack([NOISE, form(NUMBERS)])
    assert telling_columns(columns, NUMBERS) == Told({TOGETHER: [5]}, 60, [5])


@pytest.mark.parametrize("column", [NUMBERS + 0.1 * NOISE[:, 0], np.roll(NUMBERS, 1), 0 * NUMBERS])
def test_a_column_that_knows_nearly_as_much(column: np.ndarray) -> None:
    assert not told_of(np.column_stack([NOISE, column]), NUMBERS)


def test_the_step_before_of_a_smooth_series_is_no_leak() -> None:
    series = np.cumsum(RANDOM.normal(0, 1, 200))
    windows = np.lib.stride_tricks.sliding_window_view(series, 9)
    assert not told_of(windows[:, :-1], windows[:, -1])
    assert told_of(windows, windows[:, -1]) == [8]


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_windows_of_a_series_that_only_grows_are_no_leak(noise: float) -> None:
    random = np.random.default_rng(0)
    series = np.cumsum(random.poisson(20, 2000) + 1.0) + random.normal(0, noise, 2000)
    for _ in range(10):
        windows = series[random.integers(0, 1990, 64)[:, None] + np.arange(9)]
        assert not told_of(windows[:, :-1], windows[:, -1])


def test_columns_that_tell_classes_together() -> None:
    one_hot = np.eye(3)[CLASSES.astype(int)]
    told = telling_columns(np.column_stack([NOISE, one_hot]), CLASSES)
    assert told == Told(
        {TOGETHER: [5, 6, 7]}, 57, [], are_classes=True
    )  # the first row of each class shows nothing
    told = telling_columns(np.column_stack([one_hot, CLASSES]), CLASSES)
    assert told == Told({TOGETHER: [0, 1, 2, 3]}, 57, [3], are_classes=True)


def test_a_column_that_tells_some_of_the_classes_only() -> None:
    assert not told_of(np.column_stack([NOISE, CLASSES == 1]), CLASSES)


def test_targets_that_are_all_equal_are_told_by_nothing() -> None:
    assert telling_columns(NOISE, np.ones(60)) is None


@given(st.integers(8, 40), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_noise_tells_no_numbers(rows: int, columns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    told = told_of(random.normal(0, 1, (rows, columns)), random.normal(0, 1, rows))
    assert not told or rows < 12


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


TARGETS = np.random.default_rng(1).normal(0, 1, (60, 2))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([TARGETS[:, 1], -TARGETS[:, 0]], [[6], [5]]),
        ([TARGETS[:, 1]], [[], [5]]),
    ],
)
def test_each_of_several_targets_has_its_columns(
    more: list[np.ndarray], told: list[list[int]]
) -> None:
    found = columns_of_all(np.column_stack([NOISE, *more]), TARGETS)
    expected = [({TOGETHER: columns}, 60 * len(columns)) for columns in told]
    assert [*map(shown, found or [])] == expected


def test_inputs_that_are_to_be_rebuilt_tell_nothing() -> None:
    assert columns_of_all(np.column_stack([TARGETS, NOISE[:, :1]]), TARGETS) is None


def test_nothing_is_known_of_targets_that_do_not_vary() -> None:
    columns = np.column_stack([NOISE, TARGETS[:, 0]])
    found = columns_of_all(columns, np.column_stack([TARGETS[:, 0], np.ones(60)]))
    assert found == [Told({TOGETHER: [5]}, 60, [5]), None]


@pytest.mark.parametrize("has_leak", [True, False])
def test_of_an_image_some_elements_are_looked_at(*, has_leak: bool) -> None:
    frames = np.random.default_rng(0).normal(0, 1, (60, 4, 100)).cumsum(1)
    given = frames if has_leak else frames[:, :3]
    found = columns_of_all(given.reshape(60, -1), frames[:, -1])
    assert found is not None
    assert len(found) == 32
    assert all(told is not None and told.columns[TOGETHER] for told in found) is has_leak


@pytest.mark.parametrize(("num_wrong", "is_told"), [(0, True), (1, False), (4, False)])
def test_a_good_feature_is_not_the_class(num_wrong: int, *, is_told: bool) -> None:
    classes = np.arange(100) % 2
    wrong = np.where(np.arange(100) < num_wrong, 1 - classes, classes)
    columns = np.column_stack([np.random.default_rng(0).normal(size=(100, 9)), 5.0 - wrong])
    assert told_of(columns, classes * 1.0) == ([9] if is_told else [])


@pytest.mark.parametrize(("num_wrong", "is_told"), [(1, False), (12, True)])
def test_what_is_the_class_stands_out(num_wrong: int, *, is_told: bool) -> None:
    classes = np.arange(100) % 2
    near = np.where(np.arange(100) < num_wrong, 1 - classes, classes)
    noise = np.random.default_rng(0).normal(size=(100, 9))
    columns = np.column_stack([noise, near, classes])
    assert told_of(columns, classes * 1.0) == ([10] if is_told else [])
    columns[:, 10] = 20 * classes + noise[:, 0]
    assert told_of(columns, classes * 1.0) == ([10] if is_told else [])


def test_of_few_rows_a_column_comes_near_by_chance() -> None:
    random = np.random.default_rng(0)
    columns = (random.random((16, 20_000)) < 0.5) * 1.0
    assert told_of(columns, columns[:, 7]) == [7]


def test_a_column_that_parts_two_classes_by_a_wide_gap() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 2, 64).astype(float)
    columns = random.normal(size=(64, 9))
    wide, narrow = columns.copy(), columns.copy()
    wide[:, 3] += 15 * classes
    narrow[:, 3] += 6 * classes
    assert told_of(wide, classes) == [3]
    assert not told_of(narrow, classes)
    assert not told_of(wide[:, :4], classes)  # of few columns one may lie far apart
    told = telling_columns(wide, classes)  # as of images
    assert told is not None
    assert not told.columns[TOGETHER]
    several = np.stack([classes, random.integers(0, 2, 64)], axis=1)
    wide[:, 1] -= 20 * several[:, 1]
    found = columns_of_all(wide, several, may_part=True) or []
    assert [told and next(iter(told.columns.values())) for told in found] == [[3], [1]]


def test_nothing_is_known_of_gaps_where_a_class_is_rare() -> None:
    columns = np.random.default_rng(0).normal(size=(64, 9))
    rare = np.repeat([1.0, 0.0], [7, 57])
    assert telling_columns(columns + 20 * rare[:, None], rare, may_part=True) is None
    assert telling_columns(columns, rare) is not None  # what is not equal is refuted


def test_columns_of_which_each_parts_a_class() -> None:
    random = np.random.default_rng(0)
    classes = np.arange(64.0) % 8
    columns = random.normal(size=(64, 20))
    columns[np.arange(64), classes.astype(int)] += 20.0
    told = telling_columns(columns, classes, may_part=True)
    assert shown(told) == ({f"{at}.0": [at] for at in range(8)}, 56)
    columns[classes == 5, 5] = random.normal(size=8)
    assert not told_of(columns, classes)


@pytest.mark.parametrize("num_columns", [10, 20, 64])
def test_classes_that_lie_far_apart_are_no_leak(num_columns: int) -> None:
    for seed in range(10):
        random = np.random.default_rng(seed)
        classes = random.integers(0, 3, (4, 64))
        columns = random.uniform(-10, 10, (3, num_columns))[classes]
        columns += random.normal(size=columns.shape)
        assert not all(map(told_of, columns, classes * 1.0))


def test_a_mark_in_images_is_no_leak() -> None:
    random = np.random.default_rng(0)
    classes = np.arange(64.0) % 8
    images = random.normal(size=(64, 20))
    images[np.arange(64), classes.astype(int)] = 1.0
    assert not told_of(images, classes)


@pytest.mark.parametrize(("classes", "num_rows"), [(CLASSES, 6), (NUMBERS, 9)])
def test_only_new_rows_count(classes: np.ndarray, num_rows: int) -> None:
    columns = np.column_stack([NOISE, classes])
    told = telling_columns(columns, classes, is_new=lambda: np.arange(60) < 9)
    assert shown(told) == ({TOGETHER: [5]}, num_rows)
    told = telling_columns(columns, classes, is_new=lambda: np.zeros(60, np.bool_))
    assert shown(told) == ({TOGETHER: [5]}, 0)


@pytest.mark.parametrize("targets", [CLASSES, NUMBERS])
def test_which_rows_are_new_is_asked_only_where_a_column_tells(targets: np.ndarray) -> None:
    asked: list[int] = []

    def is_new() -> np.ndarray:
        asked.append(1)
        return np.ones(60, np.bool_)

    telling_columns(NOISE, targets, is_new=is_new)
    assert not asked
    telling_columns(np.column_stack([NOISE, targets]), targets, is_new=is_new)
    assert asked


@pytest.mark.parametrize(("length", "num_rows"), [(1, 57), (5, 11)])
def test_of_states_that_last_only_changes_count(length: int, num_rows: int) -> None:
    states = np.repeat(np.arange(60 // length) % 3, length) * 1.0
    assert rows_of(np.column_stack([NOISE, states]), states) == num_rows


@pytest.mark.parametrize(("are_classes", "told"), [(True, [5, 6, 7, 8]), (False, [])])
def test_many_classes_in_a_batch_are_not_numbers(told: list[int], *, are_classes: bool) -> None:
    targets = np.array([0, 3, 1, 2, 3, 0, 4, 0])
    columns = np.column_stack([NOISE[:8], np.eye(5)[targets][:, 1:]])
    found = telling_columns(columns, targets * 1.0, are_classes=are_classes)
    assert found is not None
    assert found.columns[TOGETHER] == told


@pytest.mark.parametrize(
    ("num_positive", "num_rows"), [(1, 0), (2, 1 + 4), (11, 10 + 40), (30, 29 + 97), (64, 126)]
)
def test_rows_of_the_most_frequent_class_show_little_alone(
    num_positive: int, num_rows: int
) -> None:
    classes = np.random.default_rng(0).permutation(np.arange(128) < num_positive).astype(float)
    columns = np.column_stack([np.random.default_rng(0).normal(size=(128, 3)), classes])
    assert shown(telling_columns(columns, classes)) == ({TOGETHER: [3]}, num_rows)


def test_one_huge_target_does_not_make_all_others_equal() -> None:
    targets = np.r_[1e9, NOISE[1:, 0]]
    set_once = np.arange(60) == 0
    assert told_of(np.column_stack([NOISE[:, 1:], set_once, targets]), targets) == [5]


@pytest.mark.parametrize(
    "targets",
    [
        60.0 - np.arange(60),  # what is left of one series
        np.r_[20 - np.arange(20), 140 - np.arange(40)],  # of one that ends and one that begins
        np.repeat([0.0, 2.0, 1.0], 20),
    ],
)
def test_rows_in_the_order_of_a_series_show_nothing(targets: np.ndarray) -> None:
    counting = np.r_[120 + np.arange(20), np.arange(40)] if targets[0] == 20 else -targets
    columns = np.column_stack([NOISE, counting])
    assert told_of(columns, targets) == [5]
    assert rows_of(columns, targets) == 0
    shuffled = np.random.default_rng(0).permutation(60)
    assert rows_of(columns[shuffled], targets[shuffled]) > 50


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
@pytest.mark.parametrize("targets", [NUMBERS, CLASSES])
@pytest.mark.filterwarnings("error")
def test_rows_with_a_number_that_is_not_finite_are_left_out(
    value: float, targets: np.ndarray
) -> None:
    columns = np.column_stack([NOISE, targets])
    columns[7, 5] = value
    assert told_of(columns, targets) == [5]
    columns[:40, 0] = value
    assert not told_of(columns, targets)  # row 7 comes back, and takes its column with it
    columns[7, 5] = targets[7]
    assert told_of(columns, targets) == [5]


def test_steps_of_a_clock_are_not_taken_for_equal() -> None:
    seconds = 1.7e9 + 60 * np.arange(60)
    classes = np.repeat([0.0, 1.0, 0.0], 20)
    assert not told_of(np.column_stack([NOISE, seconds]), classes)
    classes = np.repeat([0.0, 1.0], 30)
    assert not told_of(np.column_stack([NOISE, seconds]), classes)


def test_columns_that_are_known_must_tell_nearly_all_classes_by_themselves() -> None:
    columns = np.column_stack([CLASSES == 1, CLASSES == 2, NOISE[:, 0], np.ones(60)])
    told = telling_columns(columns, CLASSES, known=[0, 1, 3])
    assert shown(told) == ({TOGETHER: [0, 1, 3]}, 57)  # one that does not vary is not refuted
    told = telling_columns(columns, CLASSES, known=[0, 3])
    assert shown(told) == ({TOGETHER: []}, 0)
