from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.detectors.class_codes import ClassCode, identify_classes

RANDOM = np.random.default_rng(0)
CLASSES = RANDOM.integers(0, 4, 200) * 1.0
NOISE = RANDOM.normal(size=(200, 3))


def found(
    *columns: Any, classes: Any = CLASSES, noise: Any = NOISE, batch: int = 50
) -> list[ClassCode]:
    """Return the answer for each batch, with a state that goes through JSON."""
    table, state = np.column_stack([noise, *columns]), {}
    answers = []
    for start in range(0, len(classes), batch):
        rows = slice(start, start + batch)
        answers.append(identify_classes(state, table[rows], classes[rows]))
        state = json.loads(json.dumps(state))
    return answers


@pytest.mark.parametrize("column", [CLASSES, -CLASSES, np.exp(CLASSES), CLASSES == 2])
def test_one_column_that_has_a_value_for_each_class(column: Any) -> None:
    is_whole = len(np.unique(column)) == 4
    assert found(column)[-1] == (ClassCode([3], has_marks=True) if is_whole else ([], False))


def test_bits_of_the_class_identify_it_together() -> None:
    bits = [CLASSES % 2, CLASSES // 2]
    assert found(*bits)[-1] == ClassCode([3, 4], has_marks=True)
    assert found(bits[0])[-1] == ClassCode([], has_marks=False)


def test_a_mark_may_stand_in_a_column_of_other_numbers() -> None:
    background = RANDOM.normal(size=(200, 4))
    background[np.arange(200), CLASSES.astype(int)] = 9.0
    assert found(background)[-1] == ClassCode([3, 4, 5, 6], has_marks=True)


def test_classes_that_lie_apart_need_many_columns() -> None:
    column = CLASSES + 0.1 * RANDOM.random(200)
    assert found(column)[-1] == ClassCode([], has_marks=False)
    noise = RANDOM.normal(size=(200, 7))
    assert found(column, noise=noise)[-1] == ClassCode([7], has_marks=False)


def test_one_row_of_another_class_refutes_a_column() -> None:
    column = CLASSES.copy()
    column[120] = (column[120] + 2) % 4
    answers = found(column)
    assert [bool(answer.columns) for answer in answers] == [True, True, False, False]


def test_classes_that_come_late_are_identified_too() -> None:
    order = np.argsort(CLASSES, kind="stable")
    table = np.column_stack([NOISE, CLASSES])[order]
    assert found(classes=CLASSES[order], noise=table)[-1].columns == [3]


def test_more_classes_than_fit_are_not_judged() -> None:
    classes = np.arange(200.0)
    assert not found(classes, classes=classes)[-1].columns


@given(seed=st.integers(0, 999), num_classes=st.integers(2, 9))
def test_columns_of_noise_identify_nothing(seed: int, num_classes: int) -> None:
    random = np.random.default_rng(seed)
    classes = random.integers(0, num_classes, 200) * 1.0
    noise = random.normal(size=(200, 20))
    assert not found(classes=classes, noise=noise)[-1].columns


def test_the_state_is_bounded() -> None:
    state: dict[str, Any] = {}
    classes = RANDOM.integers(0, 60, 500) * 1.0
    identify_classes(state, RANDOM.random((500, 5000)) < 0.5, classes)
    assert len(json.dumps(state)) < 30_000
