"""What does not carry over from training to validation."""

from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.detectors.generalisation import (
    gap_percent,
    has_gap,
    has_turned,
    is_learned_by_heart,
)
from rule_runtime.numerics.course import Course


def course_of(passes: list[float], training: float, *, start: float = 1.0, **more: float) -> Course:
    numbers = {"training_at_first": 0.5, "rise": 0.0, "noise": 0.0, **more}
    return Course(
        np.array(passes),
        passes[0],
        min(passes),
        training=training,
        start=start,
        fall=start - training,
        **numbers,
    )


def test_a_gap_is_a_part_of_what_there_is_to_learn() -> None:
    course = course_of([0.9, 0.5], 0.1)
    assert gap_percent(course, 1.0, 2.0, by_roots=False) == pytest.approx(40)
    assert gap_percent(course, 4.0, 2.0, by_roots=False) == pytest.approx(10)
    root = 100 * (np.sqrt(0.5) - np.sqrt(0.1)) / 2
    assert gap_percent(course, 4.0, 2.0, by_roots=True) == pytest.approx(root)


@pytest.mark.parametrize(
    ("passes", "more", "expected"),
    [
        ([0.9, 0.5], {}, True),
        ([0.9, 0.19], {}, False),  # not twice the training loss
        ([0.9, 0.5], {"noise": 0.11}, False),
        ([1.4, 0.5], {"training_at_first": 0.95}, True),  # 5 times instead of 1.5 times
        ([4.0, 0.5], {"training_at_first": 0.95}, False),  # the two sets differ in kind
    ],
)
def test_a_gap_is_larger_than_noise_and_than_at_first(
    passes: list[float], more: dict[str, float], *, expected: bool
) -> None:
    assert has_gap(course_of(passes, 0.1, **more), 2.0) is expected


@pytest.mark.parametrize(
    ("passes", "rise", "expected"),
    [
        ([0.5, 0.55, 0.6, 0.7], 0.0, True),
        ([0.5, 0.55, 0.6, 0.7], 0.2, False),  # training rises, too
        ([0.5, 0.7, 0.6, 0.7], 0.0, False),
        ([0.5, 0.52, 0.54, 0.56], 0.0, False),
    ],
)
def test_validation_turns(passes: list[float], rise: float, *, expected: bool) -> None:
    assert has_turned(course_of(passes, 0.3, rise=rise, noise=0.1), 1.0) is expected


@pytest.mark.parametrize(
    ("passes", "training", "expected"),
    [
        ([1.0, 1.0, 1.02, 1.02], 0.7, True),
        ([1.0, 1.02, 1.02], 0.7, False),  # too few passes
        ([1.0, 0.9, 1.02, 1.02], 0.7, False),  # once it was better
        ([1.0, 1.0, 1.02, 1.02], 0.98, False),  # training hardly learns
        ([0.5, 0.5, 0.52, 0.52], 0.1, False),  # all was learned before the first pass
    ],
)
def test_what_is_learned_by_heart(passes: list[float], training: float, *, expected: bool) -> None:
    assert is_learned_by_heart(course_of(passes, training)) is expected
