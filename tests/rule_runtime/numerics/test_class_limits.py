from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.numerics.class_limits import Limits, comes_near, limits_of, parting

FORMS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "limit": lambda labels, random: np.where(labels, 1, -1) * random.random(len(labels)),
    "one value": lambda labels, random: labels * random.normal(size=len(labels)),
    "noise": lambda labels, random: random.normal(size=len(labels)),
    "far apart": lambda labels, random: 9.0 * labels + random.normal(size=len(labels)),
}


def of_batches(columns: np.ndarray, labels: np.ndarray, at: list[int]) -> Limits | None:
    kept: Limits | None = None
    for rows, own in zip(np.split(columns, at), np.split(labels, at), strict=True):
        kept = limits_of(rows, own, kept)
        kept = json.loads(json.dumps(kept))  # as in a checkpoint
    return kept


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(40, 200), max_size=4))
def test_batches_one_by_one_tell_what_all_rows_do(seed: int, cuts: list[int]) -> None:
    random = np.random.default_rng(seed)
    labels = (np.arange(240) % 2).astype(float)
    columns = np.column_stack([form(labels, random) for form in FORMS.values() for _ in "abc"])
    parts, whole = of_batches(columns, labels, sorted(cuts)), of_batches(columns, labels, [])
    assert parts is not None
    assert whole is not None
    assert parts["columns"] == whole["columns"] == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    assert parts["ranges"] == whole["ranges"]
    assert parts["is_lone"] == whole["is_lone"]


@pytest.mark.parametrize(
    ("form", "is_told"), [("limit", True), ("one value", True), ("noise", False)]
)
def test_what_parts_classes(form: str, *, is_told: bool) -> None:
    random = np.random.default_rng(0)
    labels = (np.arange(200) % 2).astype(float)
    columns = np.column_stack([random.normal(size=(200, 8)), FORMS[form](labels, random)])
    limits = limits_of(columns, labels, None)
    assert limits is not None
    assert parting(limits) == ([8] if is_told else [])


def test_kinds_that_lie_far_apart_were_not_made_by_a_limit() -> None:
    random = np.random.default_rng(0)
    labels = (np.arange(200) % 2).astype(float)
    columns = np.column_stack([random.normal(size=(200, 8)), FORMS["far apart"](labels, random)])
    limits = limits_of(columns, labels, None)
    assert limits is not None
    assert limits["columns"] == [8]
    assert parting(limits) == []


@pytest.mark.parametrize("labels", [np.arange(24) % 3, np.r_[0.0:24.0]])
def test_more_classes_than_two_are_not_parted(labels: np.ndarray) -> None:
    limits = limits_of(np.random.default_rng(0).normal(size=(24, 9)), labels * 1.0, None)
    assert limits is not None
    assert limits["columns"] == []


def test_numbers_of_words_have_no_limit_but_one_may_be_of_one_class_alone() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(200) % 2
    words = random.integers(1, 9, (200, 8))
    limited = 10 * labels + random.integers(1, 9, 200)
    alone = np.where(labels == 1, 5, words[:, 0] + 10)
    columns = np.column_stack([words, limited, alone])
    of_words, of_numbers = (limits_of(c, labels * 1.0, None) for c in (columns, columns * 1.0))
    assert of_words is not None
    assert of_numbers is not None
    assert of_numbers["columns"] == [8, 9]
    assert parting(of_words) == [9]


def test_a_third_class_and_fewer_columns_refute() -> None:
    random = np.random.default_rng(0)
    labels = (np.arange(64) % 2).astype(float)
    columns = np.column_stack([random.normal(size=(64, 8)), labels])
    kept = limits_of(columns, labels, None)
    assert kept is not None
    assert kept["columns"] == [8]
    for rows, own in ((columns, labels + 1), (columns[:, :8], labels)):
        now = limits_of(rows, own, kept)
        assert now is not None
        assert now["columns"] == []


def test_of_many_columns_a_few_rows_of_a_class_tell_nothing() -> None:
    labels = np.r_[np.zeros(20), np.ones(7)]
    assert limits_of(np.random.default_rng(0).normal(size=(27, 129)), labels, None) is None


def test_a_rare_class_is_parted_by_what_several_batches_have() -> None:
    """As where 5 % are ill, and a column says since when: 0 where they are not."""
    rng = np.random.default_rng(0)
    kept = None
    for batch in range(40):
        labels = (np.arange(32) < batch % 3) * 1.0  # two batches of three have one or two
        columns = rng.normal(size=(32, 10))
        columns[:, 4] = labels * rng.uniform(5, 35, 32)
        kept = limits_of(columns, labels, kept)
    assert kept is not None
    assert parting(kept) == [4]


@pytest.mark.parametrize(("share", "is_near"), [(0.85, False), (0.99, True)])
def test_a_further_column_that_is_nearly_always_right(share: float, *, is_near: bool) -> None:
    random = np.random.default_rng(0)
    labels = (np.arange(400) % 2).astype(float)
    right = np.where(random.random(400) < share, labels, 1 - labels)
    columns = np.column_stack([labels, 5.0 * right + random.random(400)])
    assert comes_near(columns, labels, [0]) is is_near


def test_of_eight_rows_nothing_is_known() -> None:
    columns, labels = np.random.default_rng(0).normal(size=(8, 64)), np.arange(8.0) % 2
    assert comes_near(columns, labels, []) is None


def test_of_few_rows_and_many_columns_one_comes_near_by_chance() -> None:
    labels = (np.arange(16) % 2).astype(float)
    noise = np.random.default_rng(0).random((16, 20_000)) < 0.5
    assert not comes_near(np.column_stack([labels, noise]), labels, [0])


def test_a_leak_stands_out_of_columns_that_are_good_together() -> None:
    table = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    random = np.random.default_rng(0)
    columns = np.column_stack([table.data, table.target])
    parts = [random.choice(len(columns), 64, replace=False) for _ in range(50)]
    assert sum(comes_near(columns[rows], 1.0 * table.target[rows], [30]) for rows in parts) < 10
