from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.detectors.token_leaks import are_copied, are_next, is_last_place_worst

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
