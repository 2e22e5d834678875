from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.numerics.activations import activated_twice, squashed

SOURCE = (-2.0, 1.5)


def made(*ends: tuple[float, float], group: int = 0) -> list[tuple[bool, bool]]:
    """Return of each pair of ends whether it is twice activated, and squashed, of the source."""
    tensors = np.array([SOURCE, *ends])
    groups = np.array([0, *([group] * len(ends))])
    is_source = np.arange(len(tensors)) == 0
    arguments = (tensors, groups, is_source)
    found = zip(activated_twice(*arguments).tolist(), squashed(*arguments).tolist(), strict=True)
    return list(found)[1:]


def test_what_activations_make_of_the_ends_of_a_source() -> None:
    tanh = (np.tanh(-2.0), np.tanh(1.5))
    assert made(tanh) == [(False, True)]
    assert made((np.tanh(tanh[0]), np.tanh(tanh[1]))) == [(True, False)]
    assert made((0.0, tanh[1])) == [(True, False)]  # tanh of ReLU
    assert made((0.0, 1.5), SOURCE, (0.0, 0.0)) == [(False, False)] * 3
    assert made((tanh[0], 0.8), (-0.5, tanh[1])) == [(False, False)] * 2  # one end is not enough


def test_softplus_of_softplus_and_of_relu_are_two_of_one_are_not() -> None:
    once = np.logaddexp(SOURCE, 0)
    assert made(tuple(once)) == [(False, False)]
    assert made(tuple(np.logaddexp(once, 0))) == [(True, False)]
    assert made((np.log(2), once[1])) == [(True, False)]  # of ReLU


def test_only_tensors_of_a_group_are_compared() -> None:
    assert made((np.tanh(-2.0), np.tanh(1.5)), group=1) == [(False, False)]


@pytest.mark.parametrize("source", [(np.nan, 1.0), (-np.inf, np.inf), (0.0, 0.0), (-50.0, 50.0)])
def test_ends_that_many_tensors_have_identify_nothing(source: tuple[float, float]) -> None:
    """Many tensors reach 0 or 1 exactly, whatever they are made of."""
    tensors = np.array([source, (0.0, 1.0), (-1.0, 1.0), (0.0, 0.0), (np.nan, np.nan)])
    arguments = (tensors, np.zeros(5, np.int64), np.arange(5) == 0)
    assert not activated_twice(*arguments).any()
    assert not squashed(*arguments).any()


@pytest.mark.parametrize("far", [7e4, 1e6, 1e20])
def test_of_large_numbers_softplus_is_a_relu(far: float) -> None:
    """They differ by softplus of 0, which is less than the rounding of such numbers."""
    tensors = np.array([(-far, far), (0.0, far)])
    arguments = (tensors, np.zeros(2, np.int64), np.arange(2) == 0)
    assert not activated_twice(*arguments).any()


def test_without_tensors_there_is_nothing() -> None:
    nothing = (np.empty((0, 2)), np.empty(0, np.int64), np.empty(0, np.bool_))
    assert activated_twice(*nothing).shape == (0,)
