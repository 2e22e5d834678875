from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rule_runtime.numerics.overlap import overlap_of

RANDOM = np.random.default_rng(0)
MASKS = (RANDOM.uniform(size=(6, 1, 5, 5)) < 0.3).astype(np.float32)
OUTPUTS = (4 * MASKS - 1 + RANDOM.normal(size=MASKS.shape)).astype(np.float32)


def dice(o: np.ndarray, t: np.ndarray, above: float = 0.0, below: float = 0.0) -> float:
    return float((2 * (o * t).sum() + above) / (o.sum() + t.sum() + below))


def of_rows(o: np.ndarray, t: np.ndarray) -> float:
    return float(np.mean([dice(*pair) for pair in zip(o, t, strict=True)]))


def jaccard(o: np.ndarray, t: np.ndarray) -> float:
    both = (o * t).sum()
    return float((both + 1) / (o.sum() + t.sum() - both + 1))


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        (dice, "Dice"),
        (lambda o, t: dice(o, t, 0.0, 1.0), "Dice"),
        (lambda o, t: dice(o, t, 1.0, 1.0), "Dice"),
        (of_rows, "Dice"),
        (jaccard, "Jaccard"),
    ],
)
def test_overlap_is_known_again(
    measure: Callable[[np.ndarray, np.ndarray], float], name: str
) -> None:
    overlap = measure(OUTPUTS, MASKS)
    assert overlap_of(OUTPUTS, MASKS, 1 - overlap) == name
    assert overlap_of(OUTPUTS, MASKS, -overlap) == name
    assert overlap_of(OUTPUTS, MASKS, 1 - overlap + 0.001) is None


def test_overlap_of_what_a_sigmoid_returns_is_that_of_something_else() -> None:
    assert overlap_of(OUTPUTS, MASKS, 1 - dice(1 / (1 + np.exp(-OUTPUTS)), MASKS)) is None


@pytest.mark.parametrize("loss", [0.0, 1.0, np.nan])
def test_no_overlap_tells_nothing_and_nor_does_nothing_else(loss: float) -> None:
    assert overlap_of(-OUTPUTS, np.zeros_like(MASKS), loss) is None
    assert overlap_of(MASKS, MASKS, loss) is None


def test_what_does_not_fit_together() -> None:
    assert overlap_of(OUTPUTS, MASKS[:, 0], 1 - dice(OUTPUTS, MASKS)) is None
    assert overlap_of(np.zeros(0), np.zeros(0), 0.5) is None
