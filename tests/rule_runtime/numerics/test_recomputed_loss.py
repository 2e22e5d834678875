from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rule_runtime.numerics.recomputed_loss import (
    best_constant,
    best_shares,
    entropy_of_counts,
)

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
    targets, outputs = TARGETS[:19], OUTPUTS[:19]
    best = min(loss(targets - number) for number in np.linspace(0, 3, 30001))
    found = best_constant(outputs.astype(np.float32), targets, loss(outputs - targets))
    assert found == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "apart", "best"),
    [
        (400, [0, 2, 5], 1.0),  # columns that differ: each has its own number
        (400, [0, 0, 0], 1.0),
        (19, [0, 2, 5], 1.0 + 38 / 9),  # too few rows to tell
    ],
)
def test_columns_of_numbers_have_one_answer_each(
    rows: int, apart: list[float], best: float
) -> None:
    signs = np.arange(rows * 3).reshape(rows, 3) % 2 * 2.0 - 1
    targets = signs + np.array(apart)
    outputs = np.random.default_rng(1).normal(0, 1, targets.shape)
    found = best_constant(outputs, targets, float(((outputs - targets) ** 2).mean()))
    assert found == pytest.approx(best, rel=0.01 if rows > 20 else 0.05)


@pytest.mark.parametrize(("rows", "is_known"), [(50, True), (49, False)])
def test_pixels_that_are_rarely_yes_have_a_frequency_each(rows: int, *, is_known: bool) -> None:
    random = np.random.default_rng(2)
    shares = np.concatenate([np.zeros(8), np.full(8, 0.02), np.full(16, 0.5)])
    targets = (random.random((rows, 32)) < shares).astype(np.float64)
    scores = random.normal(0, 1, targets.shape)
    loss = float((np.logaddexp(0, scores) - targets * scores).mean())
    found = best_shares(scores, targets, loss)
    assert found == pytest.approx(0.25 * 0.098 + 0.5 * math.log(2) if is_known else 0, abs=0.01)


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


LOGITS = RANDOM.normal(0, 2, (200, 3)).astype(np.float32)
CLASSES = RANDOM.permutation(np.repeat([0, 1, 2], [120, 60, 20]))
LOG_SHARES = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
OF_ROWS = -LOG_SHARES[np.arange(200), CLASSES]
GUESS = 0.9  # about the entropy of 60, 30 and 10 %


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (LOGITS, CLASSES),
        (LOG_SHARES, CLASSES.astype(np.uint8)),
        (np.exp(LOG_SHARES), CLASSES),  # as a loss of probabilities takes them
        (LOGITS.reshape(20, 10, 3), CLASSES.reshape(20, 10)),
        (LOGITS.reshape(20, 10, 3).transpose(0, 2, 1), CLASSES.reshape(20, 10)),
        (LOGITS.reshape(20, 10, 3), CLASSES),
        (np.concatenate([LOGITS, 9 * LOGITS]), np.concatenate([CLASSES, np.full(200, -100)])),
    ],
)
def test_how_frequent_classes_are_is_the_best_single_answer(
    outputs: np.ndarray, targets: np.ndarray
) -> None:
    found = best_shares(outputs, targets, float(OF_ROWS.mean()))
    shares = np.bincount(CLASSES) / 200
    assert found == pytest.approx(-(shares * np.log(shares)).sum() + 2 / 400)
    assert found == pytest.approx(GUESS, abs=0.05)


YES = (RANDOM.random((200, 1)) < 0.3).astype(np.float32)
ODDS = RANDOM.normal(0, 2, (200, 1)).astype(np.float32)
OF_YES = np.logaddexp(0, ODDS) - YES * ODDS


@pytest.mark.parametrize(
    ("outputs", "targets", "columns"),
    [
        (ODDS, YES, YES),
        (1 / (1 + np.exp(-ODDS)), YES, YES),
        (ODDS[:, 0], YES[:, 0] > 0, YES),
        (ODDS.reshape(100, 2), YES.reshape(100, 2), YES.reshape(100, 2)),
    ],
)
def test_how_frequent_yes_is_in_each_column(
    outputs: np.ndarray, targets: np.ndarray, columns: np.ndarray
) -> None:
    found = best_shares(outputs, targets, float(OF_YES.mean()))
    shares, rows = columns.mean(0), len(columns)
    entropies = -shares * np.log(shares) - (1 - shares) * np.log(1 - shares) + 1 / (2 * rows)
    assert found == pytest.approx(entropies.mean(), rel=1e-5)


WEIGHTS = np.array([1.0, 2.0, 6.0])[CLASSES]


@pytest.mark.parametrize(
    ("outputs", "targets", "loss"),
    [
        (LOGITS, CLASSES, (WEIGHTS * OF_ROWS).sum() / WEIGHTS.sum()),
        (LOGITS, CLASSES, 0.9 * OF_ROWS.mean() - 0.1 * LOG_SHARES.mean()),  # smoothed labels
        (np.zeros((200, 3), np.float32), CLASSES, np.log(3)),  # what weights would not change
        (LOGITS, CLASSES.astype(np.float64), OF_ROWS.mean()),
        (LOGITS[:, :2], CLASSES, OF_ROWS.mean()),
        (LOGITS[:100], CLASSES, OF_ROWS.mean()),
        (LOGITS, np.full(200, -100), float("nan")),
        (LOGITS, CLASSES, float("nan")),
        (np.full_like(LOGITS, np.inf), CLASSES, 1.0),
        (ODDS, 0.5 * YES, OF_YES.mean()),
        (np.full_like(ODDS, np.nan), YES, 1.0),
        (ODDS[:0], YES[:0], 0.0),
    ],
)
def test_a_cross_entropy_that_is_not_plain(
    outputs: np.ndarray, targets: np.ndarray, loss: float
) -> None:
    assert best_shares(outputs, targets, float(loss)) is None


def test_few_rows_do_not_tell_how_frequent_classes_are() -> None:
    assert best_shares(LOGITS[:40], CLASSES[:40], float(OF_ROWS[:40].mean())) == 0
    one = -LOG_SHARES[:, 0].mean()
    assert best_shares(LOGITS, np.zeros(200, np.int64), float(one)) == 0


@pytest.mark.parametrize("counts", [[30, 30], [25] * 10, [40, 39, 41]])
def test_frequencies_give_no_more_than_that_all_are_as_frequent(counts: list[int]) -> None:
    assert entropy_of_counts(np.array(counts, np.float64)) <= math.log(len(counts))
