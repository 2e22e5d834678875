from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rule_runtime.numerics.loss_pair import constant_predictor_loss

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
def test_one_number_for_all_rows(loss: Callable[[np.ndarray], float]) -> None:
    targets, outputs = TARGETS[:19], OUTPUTS[:19]
    best = min(loss(targets - number) for number in (targets.mean(), np.median(targets)))
    found = constant_predictor_loss(outputs.astype(np.float32), targets, loss(outputs - targets))
    assert found == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "apart", "best"),
    [
        (400, [0, 2, 5], 1.0),  # columns that differ: each has its own number
        (400, [0, 0, 0], 1.0),
        (19, [0, 2, 5], 1.0 + 38 / 9),  # too few rows for a number of each column
    ],
)
def test_columns_of_numbers_have_a_number_each(rows: int, apart: list[float], best: float) -> None:
    signs = np.arange(rows * 3).reshape(rows, 3) % 2 * 2.0 - 1
    targets = signs + np.array(apart)
    outputs = np.random.default_rng(1).normal(0, 1, targets.shape)
    found = constant_predictor_loss(outputs, targets, float(((outputs - targets) ** 2).mean()))
    assert found == pytest.approx(best, rel=0.01 if rows > 20 else 0.05)


@pytest.mark.parametrize(("rows", "is_known"), [(50, True), (39, False)])
def test_pixels_that_are_rarely_yes_have_a_frequency_each(rows: int, *, is_known: bool) -> None:
    random = np.random.default_rng(2)
    shares = np.concatenate([np.zeros(8), np.full(8, 0.02), np.full(16, 0.5)])
    targets = (random.random((rows, 32)) < shares).astype(np.float64)
    scores = random.normal(0, 1, targets.shape)
    loss = float((np.logaddexp(0, scores) - targets * scores).mean())
    found = constant_predictor_loss(scores, targets, loss)
    assert found == pytest.approx(0.25 * 0.098 + 0.5 * math.log(2) if is_known else 0, abs=0.02)


LOGITS = RANDOM.normal(0, 2, (200, 3)).astype(np.float32)
CLASSES = RANDOM.permutation(np.repeat([0, 1, 2], [120, 60, 20]))
LOG_SHARES = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
OF_ROWS = -LOG_SHARES[np.arange(200), CLASSES]


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
def test_classes_are_predicted_by_their_frequencies(
    outputs: np.ndarray, targets: np.ndarray
) -> None:
    found = constant_predictor_loss(outputs, targets, float(OF_ROWS.mean()))
    shares = np.bincount(CLASSES) / 200
    assert found == pytest.approx(-(shares * np.log(shares)).sum() + 2 / 400)


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
def test_yes_is_predicted_by_its_frequency_in_each_column(
    outputs: np.ndarray, targets: np.ndarray, columns: np.ndarray
) -> None:
    found = constant_predictor_loss(outputs, targets, float(OF_YES.mean()))
    shares, rows = columns.mean(0), len(columns)
    entropies = -shares * np.log(shares) - (1 - shares) * np.log(1 - shares) + 1 / (2 * rows)
    assert found == pytest.approx(entropies.mean(), rel=1e-5)


WEIGHTS = np.array([1.0, 2.0, 6.0])[CLASSES]


@pytest.mark.parametrize(
    ("outputs", "targets", "loss"),
    [
        (OUTPUTS, TARGETS, 1.234),  # something else
        (OUTPUTS[:, :2], TARGETS, 1.0),
        (OUTPUTS > 0, TARGETS > 1, 0.5),
        (np.full((40, 3), np.nan), TARGETS, math.nan),
        (LOGITS, CLASSES, (WEIGHTS * OF_ROWS).sum() / WEIGHTS.sum()),
        (LOGITS, CLASSES, 0.9 * OF_ROWS.mean() - 0.1 * LOG_SHARES.mean()),  # smoothed labels
        (np.zeros((200, 3), np.float32), CLASSES, np.log(3)),  # what weights would not change
        (LOGITS[:, :2], CLASSES, OF_ROWS.mean()),
        (LOGITS, np.full(200, -100), math.nan),
        (ODDS, 0.5 * YES, OF_YES.mean()),
        (LOGITS[:40], CLASSES[:40], OF_ROWS[:40].mean()),  # too few rows
        (LOGITS, np.zeros(200, np.int64), -LOG_SHARES[:, 0].mean()),  # one class
    ],
)
def test_other_losses_have_no_known_baseline(
    outputs: np.ndarray, targets: np.ndarray, loss: float
) -> None:
    assert constant_predictor_loss(outputs, targets, float(loss)) == 0


@pytest.mark.parametrize("counts", [[30, 30], [25] * 10, [40, 39, 41]])
def test_a_baseline_is_at_most_that_of_equal_frequencies(counts: list[int]) -> None:
    classes = np.repeat(np.arange(len(counts)), counts)
    scores = np.random.default_rng(0).normal(size=(len(classes), len(counts)))
    own = scores[np.arange(len(classes)), classes]
    loss = float((np.log(np.exp(scores).sum(1)) - own).mean())
    assert 0 < constant_predictor_loss(scores, classes, loss) <= math.log(len(counts))
