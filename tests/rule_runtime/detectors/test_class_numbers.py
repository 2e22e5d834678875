"""Numbers of classes are told from amounts by how often each occurs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.detectors.class_numbers import add_labels, num_classes

ROWS = np.arange(45)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (ROWS % 5, 5),
        ((ROWS % 5)[:, None].astype(np.float32), 5),
        (1 + ROWS % 5, None),  # grades
        (ROWS % 2, None),
        (np.minimum(ROWS % 12, 5) % 5, None),  # counts: one is more frequent
        (ROWS * 7.5, None),
        (ROWS - 10, None),
        (ROWS, None),
        (ROWS[:30] % 5, None),  # too few
        (np.zeros(0), None),
    ],
)
def test_numbers_from_0_on_that_are_about_as_frequent_are_classes(
    labels: Any, classes: int | None
) -> None:
    tally: dict[str, Any] = {}
    add_labels(tally, labels)
    assert num_classes(tally, 40) == classes


def test_labels_are_counted_from_step_to_step_but_not_twice() -> None:
    tally: dict[str, Any] = {}
    for _ in range(5):
        add_labels(tally, ROWS[:21] % 3)
    assert num_classes(tally, 40) is None
    add_labels(tally, ROWS[:21][::-1] % 3)
    assert num_classes(tally, 40) == 3


def test_amounts_stay_amounts() -> None:
    tally: dict[str, Any] = {}
    add_labels(tally, np.array([0.5]))
    add_labels(tally, ROWS % 5)
    assert num_classes(tally, 40) is None
