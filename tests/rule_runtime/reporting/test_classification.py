"""Oracle: scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from rule_runtime.reporting.classification import (
    AVERAGES,
    averaged_scores,
    class_scores,
    confusion_matrix,
    roc_auc,
    roc_curve,
)

classes = st.integers(0, 5)
pairs = st.lists(st.tuples(classes, classes), min_size=1, max_size=60)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_matrix_and_scores_are_those_of_scikit_learn(examples: list[tuple[int, int]]) -> None:
    labels, predictions = (np.array(column) for column in zip(*examples, strict=True))
    matrix = confusion_matrix(labels, predictions, 6)
    np.testing.assert_array_equal(
        matrix, metrics.confusion_matrix(labels, predictions, labels=range(6))
    )
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        labels, predictions, labels=range(6), zero_division=0
    )
    scores = class_scores(matrix)
    np.testing.assert_allclose(scores.precision, precision)
    np.testing.assert_allclose(scores.recall, recall)
    np.testing.assert_allclose(scores.f1, f1)
    np.testing.assert_array_equal(scores.support, support)
    averages = averaged_scores(matrix)
    for average in AVERAGES:
        expected = metrics.precision_recall_fscore_support(
            labels, predictions, average=average, zero_division=0
        )
        found = averages[average]
        np.testing.assert_allclose(
            [found["precision"], found["recall"], found["f1"]], expected[:3], atol=1e-15
        )


def test_rows_are_the_true_classes() -> None:
    assert confusion_matrix([0, 0, 1], [0.0, 1.0, 1.0]).tolist() == [[1, 1], [0, 1]]
    assert confusion_matrix([True], [False], 3).sum() == 1


def test_nothing_is_a_matrix_too() -> None:
    assert confusion_matrix([], []).shape == (0, 0)
    assert confusion_matrix([], [], 2).tolist() == [[0, 0], [0, 0]]
    assert averaged_scores(confusion_matrix([], [], 2))["macro"]["f1"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0]), "2 labels, but 1 predictions"),
        (([0, 2], [0, 1], 2), "class 2 is not one of the 2 classes"),
        (([0, -1], [0, 1]), "-1 among the labels is not a class"),
        (([0, 1], [0, 0.5]), "0.5 among the predictions"),
        (([0, math.nan], [0, 1]), "nan among the labels"),
        (([0, math.inf], [0, 1]), "inf among the labels"),
        ((["a"], [0]), "dtype"),
        (([2**31 + 5], [0]), "not a class"),
        (([100_000], [0]), "100001 classes"),
    ],
)
def test_what_is_no_class_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        confusion_matrix(*arguments)


scored = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 1e300])), min_size=2
).filter(lambda examples: len({label for label, _ in examples}) == 2)


@given(scored)
@settings(max_examples=60, deadline=None)
def test_roc_is_that_of_scikit_learn(examples: list[tuple[int, float]]) -> None:
    labels, scores = (np.array(column) for column in zip(*examples, strict=True))
    found = roc_curve(labels, scores)
    expected = metrics.roc_curve(labels, scores, drop_intermediate=False)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs)
    assert roc_auc(*found[:2]) == pytest.approx(metrics.roc_auc_score(labels, scores))


def test_of_one_class_there_is_no_area() -> None:
    false_positives, true_positives, _ = roc_curve([1, 1], [0.2, 0.9])
    assert np.isnan(false_positives).all()
    assert true_positives.tolist() == [0, 0.5, 1]
    assert math.isnan(roc_auc(false_positives, true_positives))
    assert math.isnan(roc_auc(*roc_curve([], [])[:2]))


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([0, 1], [0.5], "2 labels, but 1 scores"),
        ([0, 2], [0.5, 0.5], "2 is neither 0 nor 1"),
        ([0, 1], [0.5, math.nan], "not all scores are finite"),
    ],
)
def test_what_has_no_roc_is_refused(labels: Any, scores: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        roc_curve(labels, scores)
