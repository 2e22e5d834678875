from __future__ import annotations

import itertools

import numpy as np
import pytest

from rule_runtime.numerics.association import Association


def test_the_variance_is_that_over_all_permutations() -> None:
    random = np.random.default_rng(0)
    outputs, targets = random.normal(size=(8, 3)), random.normal(size=(8, 3))
    found = Association.of(outputs, targets)
    centred = outputs - outputs.mean(axis=0)
    sums = [(centred * targets[list(p)]).sum() for p in itertools.permutations(range(8))]
    assert found is not None
    assert found.together == pytest.approx((centred * targets).sum())
    assert np.mean(sums) == pytest.approx(0.0, abs=1e-9)
    assert found.variance == pytest.approx(np.var(sums))


def test_what_is_equal_is_correlated_by_one() -> None:
    numbers = np.random.default_rng(0).normal(size=(50, 1))
    for outputs, share in ((3 * numbers + 7, 1.0), (-numbers, -1.0)):
        found = Association.of(outputs, numbers[:, 0])
        assert found is not None
        assert found.correlation == pytest.approx(share)
        assert found.deviation == pytest.approx(1 / 7)  # 1 / sqrt(B - 1)


@pytest.mark.parametrize("axis", [1, -1])
def test_scores_of_classes_along_either_axis_and_targets_that_do_not_count(axis: int) -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 4, (30, 6))
    scores = np.eye(4)[classes] + random.normal(size=(30, 6, 1))  # the same for all of a row
    ignored = np.where(random.uniform(size=classes.shape) < 0.5, -100, classes)
    found = Association.of(np.moveaxis(scores, -1, axis), ignored)
    assert found is not None
    # Less the mean of each row, one-hot classes have one dimension less.
    assert found.correlation > 0.85
    shuffled = Association.of(np.moveaxis(scores, -1, axis), np.roll(ignored, 1, 0))
    assert shuffled is not None
    assert abs(shuffled.correlation) < 3 * shuffled.deviation


def test_batches_together() -> None:
    random = np.random.default_rng(0)
    found = [Association.of(*random.normal(size=(2, 100, 2))) for _ in range(9)]
    total = Association(*np.sum([one for one in found if one is not None], axis=0))
    assert found[0] is not None
    assert total.deviation == pytest.approx(found[0].deviation / 3, rel=0.1)
    assert abs(total.correlation) < 3 * total.deviation


def test_of_many_rows_some_are_taken() -> None:
    numbers = np.arange(10_000.0)
    found = Association.of(numbers, numbers)
    assert found is not None
    assert found.deviation > 1 / np.sqrt(512)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (np.zeros((4, 3)), np.zeros((4, 2))),
        (np.zeros((4, 3)), np.zeros((3, 4))),
        (np.array([[1.0], [np.nan]]), np.zeros(2)),
        (np.zeros((1, 3)), np.zeros((1, 3))),
        (np.zeros(0), np.zeros(0)),
        (np.zeros(()), np.zeros(())),
        (np.ones(8), np.arange(8.0)),  # it does not vary
    ],
)
def test_what_does_not_fit_together(outputs: np.ndarray, targets: np.ndarray) -> None:
    assert Association.of(outputs, targets) is None
