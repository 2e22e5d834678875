"""Scores that a loss reads along the wrong dimension or in the wrong order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rule_runtime.numerics.score_layout import are_scrambled, normalised_axis

RNG = np.random.default_rng(0)


def softmax(scores: Any, axis: int) -> Any:
    return np.exp(scores) / np.exp(scores).sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("is_logarithm", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis", "found"),
    [
        ((32, 5), 1, None),
        ((32, 5), 0, 0),
        ((8, 5, 6), 1, None),
        ((8, 5, 6), 2, 2),
        ((8, 5, 6), 0, 0),
        ((1, 5), 0, None),  # ones: of a single row nobody can tell
    ],
)
def test_probabilities_sum_to_1_along_the_dimension_of_the_softmax(
    shape: tuple[int, ...], axis: int, found: int | None, *, is_logarithm: bool
) -> None:
    shares = softmax(RNG.normal(0, 2, shape), axis)
    assert normalised_axis(np.log(shares) if is_logarithm else shares) == found


@pytest.mark.parametrize(
    "outputs",
    [
        RNG.normal(0, 2, (32, 5)),
        -RNG.uniform(0, 9, (32, 5)),
        np.full((4, 4), 0.25),  # balanced both ways
        np.zeros((0, 5)),
        np.arange(6).reshape(2, 3),
    ],
)
def test_scores_are_no_probabilities(outputs: Any) -> None:
    assert normalised_axis(outputs) is None


@pytest.mark.parametrize(
    ("read", "is_scrambled"),
    [
        (lambda written: written.transpose(0, 2, 1), False),
        (lambda written: written.reshape(-1, 6), False),
        (lambda written: written.transpose(1, 0, 2).reshape(-1, 6), False),
        (lambda written: 2 * written.reshape(-1, 6, 5), False),  # other scores
        (lambda written: written.reshape(8, 6, 5), True),
        (lambda written: written.transpose(0, 2, 1).reshape(-1, 6), True),
        (lambda written: np.zeros_like(written).reshape(8, 6, 5), False),
    ],
)
def test_a_view_mixes_classes_and_places(read: Callable[[Any], Any], *, is_scrambled: bool) -> None:
    written = RNG.normal(size=(8, 5, 6))
    assert are_scrambled(written, read(written)) is is_scrambled


def test_an_output_of_several_tables_may_be_divided() -> None:
    tables = RNG.normal(size=(8, 5, 3, 6))
    assert not are_scrambled(tables.reshape(8, 5, 18), tables.reshape(-1, 6))
