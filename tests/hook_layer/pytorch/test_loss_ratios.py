"""The ratio of what training starts from and the value of a call says whether the call is it."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from hook_layer.pytorch.loss_calls import LossRatios  # noqa: E402


class Call:
    """A call in several steps, of which each has another value."""

    def __init__(self, *, is_part: bool = False, may_vary: bool = False) -> None:
        self.ratios = LossRatios()
        self._is_part, self._may_vary = is_part, may_vary
        self._num_steps = 0

    def accepts(self, ratio: float, key: str = "call") -> bool:
        self._num_steps += 1
        value = torch.tensor(0.3 * self._num_steps, requires_grad=True)
        return self.ratios.accepts(
            key, value * ratio, value, is_part=self._is_part, may_vary=self._may_vary
        )

    def answers(self, *ratios: float) -> list[bool]:
        return [self.accepts(ratio) for ratio in ratios]


@pytest.mark.parametrize("factor", [1.0, 0.25, 1000.0, -1.0])
def test_a_constant_factor_is_one_of_a_loss(factor: float) -> None:
    call = Call()
    assert call.answers(factor, factor, factor * 1.0001) == [True] * 3
    assert call.ratios.first("call") == pytest.approx(factor)


def test_a_factor_that_changes_is_rejected_for_good() -> None:
    assert Call().answers(0.5, 0.7, 0.5) == [True, False, False]


def test_calls_are_judged_apart() -> None:
    call = Call()
    call.answers(0.5, 0.7)
    assert call.accepts(3, "other")
    assert call.ratios.first("other") == pytest.approx(3)
    assert call.ratios.first("unknown") == 1


def test_a_factor_from_0_to_1_may_vary_where_that_is_allowed() -> None:
    assert Call(may_vary=True).answers(1, 0.1, 0.7) == [True] * 3
    assert Call(may_vary=True).answers(0.5, 1.5) == [True, False]
    assert Call(may_vary=True).answers(0.5, -0.5) == [True, False]


@pytest.mark.parametrize(
    ("ratios", "answers"),
    [
        ((1.2, 4.9, 30.0), [True] * 3),  # a call that falls while the other part stays
        ((5.1,), [False]),
        ((0.9,), [False]),
        ((1.5, 0.9), [True, False]),
        ((1.5, math.inf), [True, False]),
        ((-2.0,), [False]),
    ],
)
def test_a_part_is_at_first_a_large_share_of_the_loss(
    ratios: tuple[float, ...], answers: list[bool]
) -> None:
    assert Call(is_part=True).answers(*ratios) == answers


def test_0_of_0_says_nothing() -> None:
    ratios, zero = LossRatios(), torch.zeros(1)
    for loss, value in ((zero, zero), (torch.ones(1), 2 * torch.ones(1)), (zero, zero)):
        assert ratios.accepts("call", loss, value, is_part=False, may_vary=False)
    assert ratios.first("call") == 0.5


@pytest.mark.parametrize("ratio", [math.inf, -math.inf, 0.0])
def test_a_loss_is_no_infinite_multiple_of_a_call_and_not_without_it(ratio: float) -> None:
    assert Call().answers(ratio) == [False]
    assert Call(may_vary=True).answers(0.5, ratio) == [True, False]


def test_the_loss_can_be_trained_on_as_before() -> None:
    value = torch.ones((), requires_grad=True)
    loss = 3 * value
    assert LossRatios().accepts("call", loss, value, is_part=False, may_vary=False)
    loss.backward()
    assert value.grad == 3
