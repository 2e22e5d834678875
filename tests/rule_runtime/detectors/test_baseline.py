"""Comparison of losses with that of the best constant predictor."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rule_runtime.detectors.curves import is_never_better, margin_of


@pytest.mark.parametrize(
    ("latest", "expected"),
    [
        ([1.0, 1.01, 1.0, 1.02], True),
        ([1.3, 1.29, 1.28, 1.28], True),  # it hardly falls, far above
        ([1.0, 0.99, 0.98, 0.97], False),  # it falls on below
        ([5.0, 4.0, 3.0, 2.0], False),  # it falls fast
        ([0.97, 1.0, 1.0, 1.0], False),  # once it was better
        ([0.985, 0.985, 0.985], False),  # better, though by little
    ],
)
def test_a_loss_that_is_never_better_than_a_constant(
    latest: list[float], *, expected: bool
) -> None:
    losses = np.array(latest)
    assert is_never_better(losses, min(latest), baseline=1.0, margin=0.02) is expected


def test_guesses_are_never_better_and_a_small_skill_is() -> None:
    """An oracle: means of the squares of errors of a constant, and of a weak predictor."""
    random = np.random.default_rng(0)
    rows, margin = 2000, margin_of(2000)
    for skill, expected in ((0.0, True), (0.3, False)):
        found = []
        for _ in range(50):
            targets = random.normal(size=rows)
            passes = [np.mean((targets * (1 - skill)) ** 2) for _ in range(5)]
            baseline = float(targets.var())
            found.append(is_never_better(np.array(passes), min(passes), baseline, margin))
        assert all(found) is expected
        assert any(found) is expected


def test_few_rows_allow_for_luck() -> None:
    assert margin_of(math.inf) == margin_of(400) == 0.02
    assert margin_of(16) == 0.1
