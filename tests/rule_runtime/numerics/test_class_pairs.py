from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.numerics.class_pairs import class_pairs, true_classes

EYE = np.eye(4)


def pairs(labels: Any, predictions: Any, **arguments: Any) -> tuple[list[int], list[int]]:
    found = class_pairs(np.asarray(labels), np.asarray(predictions), **arguments)
    assert found.labels.dtype == found.predictions.dtype == np.int64
    return found.labels.tolist(), found.predictions.tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1), st.data())
def test_every_form_of_the_same_classes_means_the_same(
    classes: list[tuple[int, int]], data: st.DataObject
) -> None:
    labels, predicted = (np.array(side) for side in zip(*classes, strict=True))
    of_labels = [labels, labels.astype("f4"), labels[:, None], labels.astype("u1")]
    scores = EYE[predicted] * 0.3 + 0.1
    one_hot, matrix = EYE[labels], data.draw(st.sampled_from([scores, scores.astype("f4")]))
    expected = labels.tolist(), predicted.tolist()
    for form in of_labels:
        assert pairs(form, predicted) == expected
        assert pairs(form, predicted.astype("f8")[:, None]) == expected
        assert pairs(form, matrix) == expected
        assert true_classes(form).tolist() == labels.tolist()
    assert pairs(one_hot, matrix) == expected
    assert pairs(one_hot, EYE[predicted].astype(bool)) == expected
    assert pairs(one_hot * 0.9 + 0.01, matrix, argmax=True) == expected
    assert true_classes(one_hot).tolist() == labels.tolist()


def test_pixels_have_their_classes_in_the_second_axis_or_the_last() -> None:
    labels = np.random.default_rng(0).integers(0, 3, (2, 5, 6))
    scores = np.eye(3)[labels]
    expected = labels.reshape(-1).tolist()
    assert pairs(labels, scores) == (expected, expected)
    assert pairs(labels, np.moveaxis(scores, -1, 1)) == (expected, expected)


def test_probabilities_count_from_a_half_on() -> None:
    assert pairs([0, 1, 1, 0], [0.49, 0.5, 0.9, 0.0]) == ([0, 1, 1, 0], [0, 1, 1, 0])
    found = class_pairs(np.array([0, 1]), np.array([[0.2], [0.7]]))
    assert (found.predictions.tolist(), found.num_classes) == ([0, 1], 2)
    assert class_pairs(np.array([0]), np.ones((1, 7))).num_classes == 7
    assert class_pairs(np.array([0]), np.array([1])).num_classes is None


def test_what_is_to_be_ignored_is_left_out() -> None:
    assert pairs([0, -100, 2, np.nan], [1, 1, np.inf, 1]) == ([0], [1])
    assert pairs([0, 1], [[0.1, np.nan], [0.1, 0.9]]) == ([1], [1])
    assert true_classes(np.array([0, -100, 2, np.nan])).tolist() == [0, 2]
    assert pairs([], []) == ([], [])
    assert pairs([], np.empty((0, 5))) == ([], [])


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([158.0, 39.0], [120.3, 50.1], "neither classes nor probabilities"),
        ([0, 2], [0.2, 0.4], "neither classes nor probabilities"),
        ([0, 1], [-0.5, 2.3], "neither classes nor probabilities"),
        ([0.5, 1], [1, 1], "labels are not classes: 0.5 is among them"),
        ([0, 1], [1, -1], "predictions are not classes: -1 is among them"),
        ([0, 1], [1, 2**40], "predictions are not classes"),
        ([0, 1], [1, 1, 1], r"labels of shape \(2,\) do not fit predictions of shape \(3,\)"),
        (["a", "b"], [0, 1], "labels of type <U1 are not classes"),
        ([0, 1], [1j, 0], "predictions of type complex128"),
    ],
)
def test_what_is_no_class_is_refused(labels: Any, predictions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pairs(labels, predictions)
