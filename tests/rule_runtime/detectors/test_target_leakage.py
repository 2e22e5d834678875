from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.detectors.target_leakage import (
    Leak,
    find_leak,
    separating_columns,
    skills,
    summed_columns,
)

RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.lognormal(size=192)
NOISE = RANDOM.normal(size=(192, 4))
CLASSES = RANDOM.integers(0, 4, 200) * 1.0
NOISE_OF_CLASSES = RANDOM.normal(size=(200, 3))


def leak_of(columns: Any, targets: Any, *, examples: int = 50, batch: int = 32) -> Leak | None:
    """Return the last answer for batches, with a state that goes through JSON."""
    state: dict[str, Any] = {}
    answer = None
    for start in range(0, len(targets), batch):
        part = slice(start, start + batch)
        answer = find_leak(
            state,
            columns[part],
            targets[part] * 1.0,
            examples=columns[part],
            are_classes=False,
            min_examples=examples,
        )
        state = json.loads(json.dumps(state))
        assert len(json.dumps(state)) < 30_000
    return answer


@pytest.mark.parametrize("form", [np.log, np.negative, lambda x: x**3])
def test_a_column_that_rises_or_falls_with_a_number(form: Any) -> None:
    assert leak_of(np.column_stack([NOISE, form(NUMBERS)]), NUMBERS) == Leak([4], 64)


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_a_good_feature_is_no_leak(noise: float) -> None:
    feature = np.log(NUMBERS) + noise * RANDOM.normal(size=192)
    assert leak_of(np.column_stack([NOISE, feature]), NUMBERS) == Leak([], 64)


def test_a_number_that_a_further_column_nearly_predicts_is_easy() -> None:
    near = np.log(NUMBERS) + 0.05 * RANDOM.normal(size=192)
    assert leak_of(np.column_stack([NOISE, NUMBERS, near]), NUMBERS) == Leak([], 64)


def test_too_few_different_examples_say_nothing() -> None:
    table = np.column_stack([NOISE, NUMBERS])
    assert leak_of(table[:48], NUMBERS[:48]) is None
    again = np.tile(np.arange(24), 8)
    assert leak_of(table[again], NUMBERS[again], batch=24) is None


def test_numbers_in_the_order_of_the_rows_are_no_leak() -> None:
    table = np.column_stack([NOISE, np.arange(192)])
    assert leak_of(table, np.sort(NUMBERS)) == Leak([], 64)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_missing_values_do_not_hide_a_leak(value: float) -> None:
    table = np.column_stack([NOISE, NUMBERS])
    table[::40, 4] = value
    table[:, 0] = value
    assert leak_of(table, NUMBERS) == Leak([4], 64)


def test_classes_need_four_times_the_examples() -> None:
    classes = np.random.default_rng(3).integers(0, 2, 256)
    table = np.column_stack([RANDOM.normal(size=(256, 4)), classes])
    assert leak_of(table[:192], classes[:192]) is None
    assert leak_of(table, classes) == Leak([4], 224)


def test_batches_of_another_width_are_left_out() -> None:
    state: dict[str, Any] = {}
    answers = []
    for width in (4, 3, 6, 4, 4):
        table = RANDOM.normal(size=(24, width))
        numbers = NUMBERS[:24]
        answers.append(
            find_leak(state, table, numbers, examples=table, are_classes=False, min_examples=50)
        )
    assert answers == [None] * 4 + [Leak([], 72)]


@given(seed=st.integers(0, 99))
def test_the_skill_of_noise_is_next_to_zero(seed: int) -> None:
    random = np.random.default_rng(seed)
    targets = random.normal(size=400)
    table = np.column_stack([random.normal(size=(400, 3)), targets, -targets])
    found = skills(table, targets)
    assert found[:3].max() < 0.1
    assert found[3:] == pytest.approx(1.0)


@given(seed=st.integers(0, 99), num_parts=st.integers(1, 5))
def test_sums_of_columns(seed: int, num_parts: int) -> None:
    random = np.random.default_rng(seed)
    columns = random.normal(size=(64, 8))
    targets = columns[:, :num_parts] @ random.uniform(1, 2, num_parts) + 7
    assert summed_columns(columns, targets) == [*range(num_parts)]
    assert not summed_columns(columns, targets + 0.01 * random.normal(size=64))
    assert not summed_columns(columns[:31], targets[:31])
    found = leak_of(columns, targets)
    assert found is not None
    assert found.columns == ([*range(num_parts)] if num_parts <= 4 else [])


def separating(*columns: Any, classes: Any = CLASSES, noise: Any = NOISE_OF_CLASSES) -> list[Any]:
    """Return the separating columns after each batch of 50, with a state that goes through JSON."""
    table, state = np.column_stack([noise, *columns]), {}
    answers = []
    for start in range(0, len(classes), 50):
        rows = slice(start, start + 50)
        answers.append(separating_columns(state, table[rows], classes[rows]))
        state = json.loads(json.dumps(state))
    return answers


@pytest.mark.parametrize("column", [CLASSES, -CLASSES, np.exp(CLASSES)])
def test_one_column_that_has_a_value_for_each_class(column: Any) -> None:
    assert separating(column)[-1] == [3]


def test_a_column_for_each_class() -> None:
    assert separating(*[number == CLASSES for number in range(4)])[-1] == [3, 4, 5, 6]
    assert separating(CLASSES == 2)[-1] == []


def test_a_class_may_be_separated_among_other_numbers() -> None:
    background = RANDOM.normal(size=(200, 4))
    background[np.arange(200), CLASSES.astype(int)] = 9.0
    assert separating(background)[-1] == [3, 4, 5, 6]


@pytest.mark.parametrize(("width", "is_separated"), [(0.1, True), (0.6, False)])
def test_classes_are_separated_by_gaps_wider_than_they(width: float, *, is_separated: bool) -> None:
    assert bool(separating(CLASSES + width * RANDOM.random(200))[-1]) is is_separated


def test_one_row_of_another_class_refutes_a_column() -> None:
    column = CLASSES.copy()
    column[120] = (column[120] + 2) % 4
    assert [bool(answer) for answer in separating(column)] == [True, True, False, False]


def test_classes_that_begin_late_are_separated_too() -> None:
    order = np.argsort(CLASSES, kind="stable")
    table = np.column_stack([NOISE_OF_CLASSES, CLASSES])[order]
    assert separating(classes=CLASSES[order], noise=table)[-1] == [3]


def test_more_classes_than_fit_are_not_judged() -> None:
    classes = np.arange(200.0)
    assert not separating(classes, classes=classes)[-1]


@given(seed=st.integers(0, 999), num_classes=st.integers(2, 9))
def test_columns_of_noise_separate_nothing(seed: int, num_classes: int) -> None:
    random = np.random.default_rng(seed)
    classes = random.integers(0, num_classes, 200) * 1.0
    assert not separating(classes=classes, noise=random.normal(size=(200, 20)))[-1]


def test_the_state_is_bounded() -> None:
    state: dict[str, Any] = {}
    classes = RANDOM.integers(0, 60, 500) * 1.0
    separating_columns(state, RANDOM.random((500, 5000)) < 0.5, classes)
    assert len(json.dumps(state)) < 30_000
