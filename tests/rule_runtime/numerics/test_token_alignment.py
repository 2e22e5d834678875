"""Which tokens the targets of a language model are, by value."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from rule_runtime.numerics.token_alignment import align
from tests.tables import table

RANDOM = np.random.default_rng(0)
TEXT = RANDOM.integers(0, 40, (16, 25))
HALF = np.where(RANDOM.random(TEXT.shape) < 0.5, TEXT, -100)
IN_TURNS = np.arange(16)[:, None] * 2 + np.arange(24) % 2


@table(
    "tokens, targets, distances, start",
    {
        "the data is shifted": (TEXT[:, :-1], TEXT[:, 1:], (1, 1), 0),
        "the last logits are dropped": (TEXT, TEXT[:, 1:], (0, 1), 0),
        "and the first": (TEXT, TEXT[:, 2:], (0, 2), 1),
        "flat targets": (TEXT, TEXT[:, 1:].reshape(-1), (0, 1), 0),
        "some are masked": (TEXT, HALF[:, 1:], (0, 1), 0),
        "an answer after a prompt": (TEXT, TEXT[:, 15:], (0, 15), 14),
        "a last target that is not in the input": (TEXT, np.roll(TEXT, -1, 1), (1, 1), 0),
        "no shift": (TEXT, TEXT, (0, 0), 0),
        "no shift, masked": (TEXT, HALF, (0, 0), 0),
        "the tokens before": (TEXT, np.roll(TEXT, 1, 1), (-1, -1), 0),
        "these, or no shift": (TEXT, TEXT[:, :-1], (-1, 0), 0),
        "two shifts": (TEXT, np.roll(TEXT, -2, 1), (2, 2), 0),
        "the same two tokens in turns": (IN_TURNS, np.roll(IN_TURNS, 1, 1), (1, 1), 0),
    },
)
def test_targets_that_are_tokens(
    tokens: Any, targets: Any, distances: tuple[int, int], start: int
) -> None:
    found = align(tokens, targets)
    assert found is not None
    assert (found.least, found.most, found.start) == (*distances, start)
    assert found.least <= found.distance <= found.most
    places = np.argwhere(found.is_token)
    known = targets.reshape(len(tokens), -1)
    assert len(places) > 100
    for row, place in places:
        assert known[row, place - start] == tokens[row, place + found.distance]


@table(
    "tokens, targets",
    {
        "others": (TEXT, 40 + TEXT),
        "one is another": (TEXT, np.where(np.arange(400).reshape(16, 25) == 99, 40, TEXT)),
        "all are masked": (TEXT, np.full_like(TEXT, -100)),
        "all are equal": (np.zeros_like(TEXT), np.zeros_like(TEXT)),
        "a class of each text": (TEXT, RANDOM.integers(0, 2, 16)),
        "the first token of each": (np.repeat(TEXT, 3, 0), np.repeat(TEXT, 3, 0)[:, 0]),
        "those of three places before": (TEXT, np.roll(TEXT, 3, 1)),
        "fewer than one by chance": (TEXT[:1], TEXT[:1, 1:]),
        "more than tokens": (TEXT[:, 1:], TEXT),
        "of other texts": (TEXT, TEXT[:15, :24]),
        "none": (TEXT, TEXT[:, :0]),
    },
)
def test_targets_that_are_none(tokens: Any, targets: Any) -> None:
    assert align(tokens, targets) is None


@table(
    "targets",
    {
        "the last logits are dropped": TEXT[:, 1:],
        "some are masked": HALF[:, 1:],
        "the tokens before": np.roll(TEXT, 1, 1),
        "two shifts": np.roll(TEXT, -2, 1),
    },
)
def test_positions_may_come_first(targets: Any) -> None:
    expected = align(TEXT, targets)
    assert expected is not None
    for is_input_transposed, is_target_transposed in product((False, True), repeat=2):
        found = align(
            TEXT.T if is_input_transposed else TEXT, targets.T if is_target_transposed else targets
        )
        assert found is not None
        assert found[:3] == expected[:3]
        assert (found.is_token == expected.is_token).all()
        assert found.is_input_transposed is is_input_transposed
        assert found.is_target_transposed is is_target_transposed
