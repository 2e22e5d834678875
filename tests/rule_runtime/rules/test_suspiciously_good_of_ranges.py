"""Columns that tell classes or numbers with some noise, or as parts of a sum, beside others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from tests.rule_runtime.rules.runs import found_at
from tests.rule_runtime.rules.test_suspiciously_good_of_batches import of_batches

ROWS = 48
BATCHES = 6

Leak = Callable[[Any, Any, Any], Any]


def table_of(leak: Leak, *, num_classes: int, num_columns: int = 8) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    batches = []
    for _ in range(BATCHES):
        of = random.integers(0, num_classes, ROWS)
        columns = random.normal(size=(ROWS, num_columns))
        batches.append((np.column_stack([columns, leak(of, columns, random)]), of))
    return batches


def sum_of(leak: Leak, *, num_columns: int = 5) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    batches = []
    for _ in range(BATCHES):
        columns = random.normal(size=(ROWS, num_columns))
        of = np.sin(columns[:, 0]) + columns[:, 1] * columns[:, 2] + random.normal(size=ROWS)
        batches.append((np.column_stack([columns, leak(of, columns, random)]), of))
    return batches


def with_noise(size: float) -> Leak:
    return lambda of, _, random: of + size * random.normal(size=len(of))


def is_found(batches: list[tuple[Any, Any]]) -> bool:
    return bool(found_at(SuspiciouslyGood(), of_batches(*batches, loss="CrossEntropyLoss")))


@pytest.mark.parametrize(("size", "found"), [(0.05, True), (0.1, True), (0.4, False)])
def test_the_number_of_the_class_with_noise(size: float, *, found: bool) -> None:
    assert is_found(table_of(with_noise(size), num_classes=5)) is found


def test_a_quantity_that_the_classes_are_bins_of() -> None:
    batches = table_of(lambda of, _, random: of + random.random(ROWS), num_classes=4)
    assert is_found(batches)
    trial = of_batches(*batches, loss="CrossEntropyLoss")
    outcome = trial.outcomes(SuspiciouslyGood())[-1]
    assert isinstance(outcome, IssueFound)
    assert "column 8 predicts the target" in outcome.evidence.sentence


@pytest.mark.parametrize(("num_columns", "found"), [(7, True), (6, False)])
def test_ranges_take_some_columns(num_columns: int, *, found: bool) -> None:
    batches = table_of(with_noise(0.1), num_classes=5, num_columns=num_columns)
    assert is_found(batches) is found


def test_classes_that_are_far_apart_by_their_nature() -> None:
    def blobs(of: Any, _: Any, random: Any) -> Any:
        centres = 12 * np.random.default_rng(3).normal(size=(4, 9))
        return centres[of] + random.normal(size=(ROWS, 9))

    assert not is_found(table_of(blobs, num_classes=4))


def test_one_row_that_lies_among_those_of_another_class() -> None:
    def leak(of: Any, _: Any, random: Any) -> Any:
        column = of + 0.05 * random.normal(size=ROWS)
        column[0] = (of[0] + 1) % 5
        return column

    assert not is_found(table_of(leak, num_classes=5))


@pytest.mark.parametrize(
    "leak",
    [
        lambda of, _, random: (part := random.normal(size=ROWS), of - part),
        lambda of, _, random: (part := 3 * random.normal(size=ROWS), 2 * of + part),
        lambda of, columns, _: of - columns[:, 0],
    ],
)
def test_columns_whose_sum_or_difference_is_the_target(leak: Leak) -> None:
    def stacked(*given: Any) -> Any:
        found = leak(*given)
        return np.stack(found, 1) if isinstance(found, tuple) else found

    assert is_found(sum_of(stacked))


def test_a_sum_of_many_columns_is_a_task() -> None:
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(ROWS, 6)) for _ in range(BATCHES)]
    assert not is_found([(x, x[:, :4].sum(1)) for x in inputs])
    assert is_found([(x, x[:, :3].sum(1)) for x in inputs])


@pytest.mark.parametrize(("size", "found"), [(0.02, True), (0.2, False)])
def test_the_target_with_noise(size: float, *, found: bool) -> None:
    assert is_found(sum_of(with_noise(size))) is found


def test_the_next_value_of_a_series_that_the_others_tell_as_well() -> None:
    random = np.random.default_rng(0)
    for noise in (0.0, 1e-2):
        phases = random.uniform(0, 6, (BATCHES, ROWS, 1))
        waves = np.sin(phases + 0.1 * np.arange(9)) + noise * random.normal(size=(6, ROWS, 9))
        assert not is_found([(wave[:, :8], wave[:, 8]) for wave in waves])


def test_rows_in_the_order_of_the_target_show_nothing() -> None:
    random = np.random.default_rng(0)
    batches = []
    for start in range(0, 600, 100):
        of = np.arange(start, start + 100) + 0.3 * random.normal(size=100)
        columns = random.normal(size=(100, 5))
        batches.append((np.column_stack([columns, np.arange(start, start + 100)]), of))
    assert not is_found([(x, np.sort(of)) for x, of in batches])
