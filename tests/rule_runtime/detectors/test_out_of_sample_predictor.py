from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.detectors.out_of_sample_predictor import (
    Prediction,
    best_predictors,
    linear_parts,
    neighbour_errors,
)

RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.lognormal(size=192)
NOISE = RANDOM.normal(size=(192, 4))


def predicted(columns: Any, targets: Any, *, rows: int = 50, batch: int = 32) -> Prediction | None:
    """Return the last answer for batches, with a state that goes through JSON."""
    state: dict[str, Any] = {}
    answer = None
    for start in range(0, len(targets), batch):
        part = slice(start, start + batch)
        answer = best_predictors(
            state,
            columns[part],
            targets[part] * 1.0,
            examples=columns[part],
            are_classes=False,
            min_rows=rows,
        )
        state = json.loads(json.dumps(state))
        assert len(json.dumps(state)) < 30_000
    return answer


@pytest.mark.parametrize("form", [np.log, np.negative, lambda x: x**3])
def test_a_column_that_rises_or_falls_with_a_number(form: Any) -> None:
    answer = predicted(np.column_stack([NOISE, form(NUMBERS)]), NUMBERS)
    assert answer is not None
    assert answer.columns == [4]
    assert answer.num_rows >= answer.min_rows == 50


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_a_good_feature_is_none(noise: float) -> None:
    feature = np.log(NUMBERS) + noise * RANDOM.normal(size=192)
    assert predicted(np.column_stack([NOISE, feature]), NUMBERS) == Prediction([], 64, 50)


def test_a_number_that_a_further_column_nearly_predicts_is_easy() -> None:
    near = np.log(NUMBERS) + 0.1 * RANDOM.normal(size=192)
    answer = predicted(np.column_stack([NOISE, NUMBERS, near]), NUMBERS)
    assert answer is not None
    assert not answer.columns


def test_too_few_rows_say_nothing() -> None:
    table = np.column_stack([NOISE, NUMBERS])
    assert predicted(table[:48], NUMBERS[:48]) is None
    again = np.tile(np.arange(24), 8)
    assert predicted(table[again], NUMBERS[again], batch=24) is None


def test_numbers_in_the_order_of_time_say_nothing() -> None:
    order = np.argsort(NUMBERS)
    table = np.column_stack([NOISE, np.arange(192)])
    assert predicted(table, NUMBERS[order]) is None


def test_a_missing_value_is_left_out() -> None:
    table = np.column_stack([NOISE, NUMBERS])
    table[::9, 4] = np.nan
    answer = predicted(table, NUMBERS)
    assert answer is not None
    assert answer.columns == [4]


def test_classes_need_four_times_the_rows() -> None:
    classes = np.random.default_rng(3).integers(0, 2, 256)
    table = np.column_stack([RANDOM.normal(size=(256, 4)), classes])
    assert predicted(table[:160], classes[:160]) is None
    answer = predicted(table, classes)
    assert answer is not None
    assert answer.columns == [4]
    assert answer.num_rows >= answer.min_rows == 200


@given(seed=st.integers(0, 99))
def test_errors_of_neighbours_in_noise_are_those_of_chance(seed: int) -> None:
    random = np.random.default_rng(seed)
    for targets, are_classes in (
        (random.normal(size=400), False),
        (random.integers(0, 5, 400) * 1.0, True),
    ):
        table = np.column_stack([random.normal(size=(400, 3)), targets])
        errors, by_chance = neighbour_errors(table, targets, are_classes=are_classes)
        assert errors[:3] == pytest.approx(by_chance, rel=0.35)
        assert errors[3] < 0.02 * by_chance


@given(seed=st.integers(0, 99), num_parts=st.integers(1, 5))
def test_sums_of_up_to_three_columns(seed: int, num_parts: int) -> None:
    random = np.random.default_rng(seed)
    columns = random.normal(size=(64, 8))
    targets = columns[:, :num_parts] @ random.uniform(1, 2, num_parts) + 7
    expected = [*range(num_parts)] if num_parts <= 3 else []
    assert linear_parts(columns, targets) == expected


def test_a_sum_that_follows_from_the_others_too_is_none() -> None:
    columns = RANDOM.normal(size=(64, 4))
    both = np.column_stack([columns, columns[:, :2] + 1e-3 * RANDOM.normal(size=(64, 2))])
    assert linear_parts(both, columns[:, 0] + columns[:, 1]) == []


def test_batches_of_another_width_and_huge_numbers_are_left_out() -> None:
    state: dict[str, Any] = {}
    for width in (4, 3, 6, 4):
        table = RANDOM.normal(size=(24, width))
        table[0, 0] = 1e300
        answer = best_predictors(
            state, table, NUMBERS[:24], examples=table, are_classes=False, min_rows=40
        )
    assert answer == Prediction([], 46, 40)
