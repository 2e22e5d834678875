from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.numerics.label_tally import is_repeated

LABELS = np.arange(20) % 3


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(LABELS, True), (LABELS[:15], False), (np.zeros(20), False)],  # few, or all the same
)
def test_labels_that_may_repeat_by_chance_do_not_count(
    labels: np.ndarray, *, expected: bool
) -> None:
    latest: dict[str, int] = {}
    assert not is_repeated(labels, latest, "key")
    assert is_repeated(labels, latest, "key") is expected
    assert not is_repeated(labels, latest, "other")


def test_the_latest_labels_of_a_key_are_compared() -> None:
    latest: dict[str, int] = {}
    found = [is_repeated(one, latest, "key") for one in (LABELS, LABELS, LABELS + 1, LABELS)]
    assert found == [False, True, False, False]


def test_no_more_than_256_keys_are_remembered() -> None:
    latest: dict[str, int] = {}
    for number in range(300):
        is_repeated(LABELS, latest, str(number))
    assert len(latest) == 256
