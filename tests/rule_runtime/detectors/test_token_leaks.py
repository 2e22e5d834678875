from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.detectors.token_leaks import (
    are_copied,
    are_next,
    are_targets_seen,
    is_last_place_worst,
)

RANDOM = np.random.default_rng(0)
TEXT = RANDOM.integers(0, 40, (16, 25))


def test_targets_that_are_the_next_tokens() -> None:
    assert are_next(TEXT[:, :-1], TEXT[:, 1:])
    assert not are_next(TEXT[:, :-1], TEXT[:, :-1])
    assert not are_next(np.zeros((4, 8), int), np.zeros((4, 8), int))
    assert not are_next(TEXT[:0], TEXT[:0])


@pytest.mark.parametrize(("share", "found"), [(0.04, True), (0.06, False), (np.nan, False)])
def test_targets_that_are_the_tokens(share: float, *, found: bool) -> None:
    targets = np.where(RANDOM.random(TEXT.shape) < 0.2, TEXT, -100)
    assert are_copied(TEXT, targets, share) is found
    assert not are_copied(np.where(targets >= 0, 40, TEXT), targets, share)
    assert not are_copied(TEXT, np.full_like(TEXT, -100), share)


@pytest.mark.parametrize(
    ("times", "shape", "found"),
    [
        (1.0, (32, 24), False),
        (1.4, (32, 24), False),
        (2.0, (32, 24), True),
        (2.0, (7, 24), False),
        (2.0, (32, 7), False),
    ],
)
def test_the_last_place_must_be_much_worse(
    times: float, shape: tuple[int, int], *, found: bool
) -> None:
    losses = RANDOM.normal(1, 0.2, shape)
    losses[:, -1] *= times
    assert is_last_place_worst(losses) is found


def test_a_few_bad_rows_are_chance() -> None:
    losses = RANDOM.normal(1, 0.2, (16, 24))
    losses[:2, -1] = 10.0
    assert not is_last_place_worst(losses)


@pytest.mark.parametrize(
    ("times", "num_twins", "others", "found"),
    [
        (3.0, 16, 1.0, True),  # a twin's scores are worse
        (1.0, 16, 1.0, False),  # they are the same
        (1.0, 7, 1.0, True),  # too few to tell, but each place is easier than the last
        (1.0, 7, 3.0, False),  # too few to tell, and one place is as hard as the last
    ],
)
def test_a_last_place_that_is_the_hardest_of_the_layout(
    times: float, num_twins: int, others: float, *, found: bool
) -> None:
    losses = RANDOM.normal(1, 0.1, (16, 12))
    losses[:, -1] *= 3
    losses[:, 5] *= others
    twins = np.full_like(losses, np.nan)
    twins[:num_twins, 0] = times * losses[:num_twins, 0]
    twins[:, -1] = 9.0
    assert are_targets_seen(losses, twins) is found
    assert not are_targets_seen(RANDOM.normal(1, 0.1, (16, 12)), 3 * twins)
