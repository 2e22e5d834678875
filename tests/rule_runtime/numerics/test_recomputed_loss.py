from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rule_runtime.numerics.recomputed_loss import best_constant, of_sigmoids_of_probabilities

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
        lambda e: np.log(np.cosh(e)).mean(),
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


SCORES = RANDOM.normal(0, 6, (40, 3))
SURE = 1 / (1 + np.exp(-SCORES))
SHARES = RANDOM.random((40, 3))
MEANS = RANDOM.normal(0, 1, (40, 2))
LOG_VARIANCES = RANDOM.normal(-1, 0.3, (40, 2))
DIVERGENCE = (MEANS**2 + np.exp(LOG_VARIANCES) - 1 - LOG_VARIANCES).sum() / 2


def cross_entropy(scores: np.ndarray) -> float:
    return float((np.log1p(np.exp(scores)) - SHARES * scores).sum())


@pytest.mark.parametrize("by", [1, 40, 120])
def test_cross_entropy_of_sigmoids_of_probabilities(by: int) -> None:
    loss = cross_entropy(SURE) / by
    found = of_sigmoids_of_probabilities(SURE.astype(np.float32), SHARES, (), loss)
    entropy = -(SURE * np.log(SURE) + (1 - SURE) * np.log(1 - SURE)).sum()
    assert found == pytest.approx(loss * by / entropy, rel=1e-3)


def test_with_the_divergence_of_a_variational_autoencoder() -> None:
    loss = (cross_entropy(SURE) + DIVERGENCE) / 40
    assert of_sigmoids_of_probabilities(SURE, SHARES, (MEANS, LOG_VARIANCES), loss)
    joined = np.concatenate([SURE, MEANS, LOG_VARIANCES], 1)
    assert of_sigmoids_of_probabilities(joined, SHARES, (), loss)
    assert of_sigmoids_of_probabilities(SURE, SHARES, (), loss) is None


@pytest.mark.parametrize(
    ("outputs", "targets", "loss"),
    [
        (SCORES, SHARES, cross_entropy(SCORES)),  # as it should be
        (SURE, SHARES, cross_entropy(SCORES)),  # of probabilities as they are
        (SURE, SHARES * 2, cross_entropy(SURE)),
        (SURE[:, :2], SHARES, cross_entropy(SURE)),
        (SURE[:9], SHARES, cross_entropy(SURE)),
        (SURE, SHARES, float("nan")),
        (np.full((40, 3), np.nan), SHARES, float("nan")),
        (SURE[0, 0], SHARES, 1.0),
        (SURE[:0], SHARES[:0], 0.0),
    ],
)
def test_other_cross_entropies(outputs: np.ndarray, targets: np.ndarray, loss: float) -> None:
    assert of_sigmoids_of_probabilities(np.asarray(outputs), targets, (), loss) is None
