from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.detectors.token_leaks import are_targets_seen, is_last_place_worst

RANDOM = np.random.default_rng(0)


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
    assert are_targets_seen(losses, twins, 2.0) is found
    assert not are_targets_seen(RANDOM.normal(1, 0.1, (16, 12)), 3 * twins, 2.0)


def test_masked_places_do_not_count() -> None:
    losses = RANDOM.normal(1, 0.1, (32, 12))
    losses[:, -1] *= 3
    losses[:16, :6] = losses[16:, -1] = losses[0, :-1] = np.nan
    assert is_last_place_worst(losses)
    assert are_targets_seen(losses, np.full_like(losses, np.nan), 2.0)
    losses[4:, -1] = np.nan
    assert not is_last_place_worst(losses)


@pytest.mark.parametrize(
    ("times", "num_twins", "guess", "found"),
    [
        (3.0, 16, 2.0, True),
        (3.0, 7, 2.0, False),
        (3.0, 16, 4.0, False),  # not worse than a guess
        (1.2, 16, 0.5, False),  # dropout may make them differ
        (3.0, 16, np.nan, False),
    ],
)
def test_a_last_place_without_a_target(
    times: float, num_twins: int, guess: float, *, found: bool
) -> None:
    losses = RANDOM.normal(1, 0.1, (16, 12))
    losses[:, -1] = np.nan
    twins = np.full_like(losses, np.nan)
    twins[:num_twins, 0] = times * losses[:num_twins, 0]
    assert are_targets_seen(losses, twins, guess) is found
