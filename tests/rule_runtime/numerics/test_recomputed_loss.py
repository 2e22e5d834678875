from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rule_runtime.numerics.recomputed_loss import best_constant

RANDOM = np.random.default_rng(0)
TARGETS = RANDOM.lognormal(0, 1, (40, 3))
OUTPUTS = RANDOM.normal(0, 1, (40, 3))


def huber(errors: np.ndarray) -> np.ndarray:
    return np.where(np.abs(errors) < 1, errors**2 / 2, np.abs(errors) - 0.5)


@pytest.mark.parametrize(
    "loss",
    [
        lambda e: (e**2).mean(),
        lambda e: 0.5 * (e**2).mean(),
        lambda e: (e**2).sum(1).mean(),
        lambda e: np.abs(e).mean(),
        lambda e: huber(e).mean(),
        lambda e: np.sqrt((e**2).mean()),
    ],
)
def test_the_least_that_one_number_gives(loss: Callable[[np.ndarray], float]) -> None:
    best = min(loss(TARGETS - number) for number in np.linspace(0, 3, 30001))
    found = best_constant(OUTPUTS.astype(np.float32), TARGETS, loss(OUTPUTS - TARGETS))
    assert found == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(
    ("outputs", "targets", "loss"),
    [
        (OUTPUTS, TARGETS, 1.234),  # something else
        (OUTPUTS[:, :2], TARGETS, 1.0),
        (OUTPUTS, TARGETS, float("nan")),
        (OUTPUTS > 0, TARGETS > 1, 0.5),
        (OUTPUTS[:1, :1], TARGETS[:1, :1], 1.0),
        (np.full((40, 3), np.nan), TARGETS, float("nan")),
    ],
)
def test_a_loss_that_nobody_knows(outputs: np.ndarray, targets: np.ndarray, loss: float) -> None:
    assert best_constant(outputs, targets, loss) is None
