from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.numerics.told_texts import are_masked, are_next, are_seen, is_source

TEXT = np.random.default_rng(0).integers(0, 9, (8, 13))


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


@pytest.mark.parametrize(
    ("other", "is_found"),
    [
        (OTHER, True),
        (OTHER[:, :5], True),
        (TEXT[:, :-1], False),
        (TEXT[:, 1:], False),  # the targets, for a model that computes its loss itself
        (np.where(OTHER > 4, TEXT[:, 1:], -100), False),
        ((OTHER > 4) * 1, False),  # a mask
        (OTHER > 4, False),
        (np.tile(np.arange(12), (8, 1)), False),  # numbers of places
        (OTHER[:, 0], False),  # a number of each text, as its length
        (OTHER[:0], False),
        (None, True),
    ],
)
def test_a_text_may_follow_from_another(other: np.ndarray | None, *, is_found: bool) -> None:
    assert is_source(other, TEXT[:, :-1], TEXT[:, 1:].reshape(-1)) is is_found
