from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.numerics.told_texts import are_masked, are_next, are_seen, is_source

TEXT = np.random.default_rng(0).integers(0, 9, (8, 13))
SHORT = np.where(np.arange(13) < 5, TEXT, 9)


@pytest.mark.parametrize(
    ("values", "targets", "is_next"),
    [
        (TEXT[:, :-1], TEXT[:, 1:], True),
        (TEXT[:, :-1], TEXT[:, 1:].reshape(-1), True),
        (TEXT[:, :-1].astype(np.int32), np.roll(TEXT[:, :-1], -1, 1), True),
        (TEXT[:, :-1], TEXT[:, :-1], False),
        (TEXT[:, 1:], TEXT[:, :-1], False),
        (TEXT, TEXT[:, 1:], True),  # the model is given all, the loss compares all but one
        (TEXT, TEXT[:, 1:].reshape(-1), True),
        (TEXT, TEXT[:, :-1], False),
        (TEXT, TEXT[:, 2:], False),
        (TEXT, np.where(np.arange(12) < 9, TEXT[:, 1:], -100), True),  # padding
        (TEXT[:, :-1], np.where(np.arange(12) < 9, TEXT[:, 1:], -100).reshape(-1), True),
        (TEXT, np.where(np.arange(12) > 5, TEXT[:, 1:], -100), False),  # behind a question
        (TEXT, np.where(np.arange(12) < 1, TEXT[:, 1:], -100), False),  # too few
        (SHORT[:, :-1], SHORT[:, 1:], False),  # padding that counts
        (SHORT, np.where(np.arange(12) < 7, SHORT[:, 1:], -100), True),
        (TEXT[:, :-1] * 1.0, TEXT[:, 1:] * 1.0, False),
        (TEXT[:, :1], TEXT[:, 1:2], False),
        (TEXT * 0, TEXT * 0, False),
        (TEXT[:0], TEXT[:0], False),
        (TEXT, None, False),
        (None, TEXT, False),
    ],
)
def test_targets_that_come_next_in_a_sequence(
    values: np.ndarray | None, targets: np.ndarray | None, *, is_next: bool
) -> None:
    assert are_next(values, targets) is is_next


HIDDEN = np.arange(TEXT.size).reshape(TEXT.shape) % 3 == 0
ASKED = np.where(HIDDEN, TEXT, -100)


@pytest.mark.parametrize(
    ("values", "targets", "is_seen"),
    [
        (TEXT, ASKED, True),
        (TEXT, ASKED.reshape(-1), True),
        (np.where(HIDDEN, 9, TEXT), ASKED, False),
        (np.where(HIDDEN & (TEXT > 1), 9, TEXT), ASKED, False),  # some are left, as for BERT
        (TEXT, TEXT, True),
        (TEXT * 0, TEXT * 0, False),
        (TEXT, TEXT * 0 - 100, False),
        (TEXT[:3], ASKED[:3], False),  # too few
        (TEXT, ASKED[:, 1:], False),
        (TEXT * 1.0, ASKED, False),
        (TEXT[:0], ASKED[:0], False),
        (TEXT, None, False),
        (None, ASKED, False),
    ],
)
def test_targets_of_some_places_that_nobody_hid(
    values: np.ndarray | None, targets: np.ndarray | None, *, is_seen: bool
) -> None:
    assert are_seen(values, targets) is is_seen


@pytest.mark.parametrize(
    ("values", "targets", "is_masked"),
    [
        (TEXT, ASKED, True),
        (TEXT, ASKED.reshape(-1), True),
        (np.where(HIDDEN, TEXT, 9), ASKED, False),  # padding
        (TEXT, TEXT, False),  # what is to be rebuilt
    ],
)
def test_a_part_of_a_text_is_asked(
    values: np.ndarray, targets: np.ndarray, *, is_masked: bool
) -> None:
    assert are_masked(values, targets) is is_masked


OTHER = np.random.default_rng(1).integers(0, 9, (8, 12))
IMAGES = np.random.default_rng(2).normal(size=(8, 1, 3, 12))


@pytest.mark.parametrize(
    ("other", "is_found"),
    [
        (OTHER, True),
        (OTHER[:, :5], True),
        (np.arange(8), True),  # a number of each text
        (np.arange(8) // 2, False),  # what many texts share, as their author or length
        (np.arange(8) % 2 > 0, False),
        (TEXT[:, :-1], False),
        (TEXT[:, 1:], False),  # the targets, for a model that computes its loss itself
        (np.where(OTHER > 4, TEXT[:, 1:], -100), False),
        (IMAGES, True),
        (IMAGES.repeat(5, 0), True),  # several of each text
        (IMAGES[:, 0, 0], True),
        (-np.abs(IMAGES[:, 0, 0]), True),
        (IMAGES[:1], False),
        (IMAGES[:2, 0], False),  # states [layers, B, H]
        ((IMAGES[:, 0, 0, :5] > 0) * 1.0, True),  # words that occur
        ((OTHER > 4) * 1, False),  # a mask
        (OTHER > 4, False),
        (np.where(IMAGES > 0, 0.0, -np.inf), False),
        (np.tile(np.arange(12), (8, 1)), False),  # numbers of places
        (np.arange(12), False),
        (np.arange(12.0)[:, None] + np.arange(4), False),
        (np.float32(0.5), False),
        (OTHER[:0], False),
        (None, True),
    ],
)
def test_a_text_may_follow_from_another_input(other: np.ndarray | None, *, is_found: bool) -> None:
    assert is_source(other, TEXT[:, :-1], TEXT[:, 1:].reshape(-1)) is is_found


def test_the_same_text_may_follow_from_the_same_source_again() -> None:
    texts = np.repeat(TEXT, 4, 0)
    assert is_source(np.repeat(np.arange(8), 4), texts[:, :-1], texts[:, 1:])


def test_of_one_text_nobody_knows_what_others_have() -> None:
    assert is_source(IMAGES[:1], TEXT[:1, :-1], TEXT[:1, 1:])
