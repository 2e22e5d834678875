"""The ratio of what training starts from and the value of a call says whether the call is it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hook_layer.pytorch.loss_calls import LossRatios


class Call:
    """A call in several steps; each has another value."""

    def __init__(self, *, largest: float | None = None, may_vary: bool = False) -> None:
        self.ratios = LossRatios()
        self._largest, self._may_vary = largest, may_vary
        self._num_steps = 0

    def accepts(self, ratio: float, key: str = "call") -> bool:
        self._num_steps += 1
        value = torch.tensor(0.3 * self._num_steps, requires_grad=True)
        return self.ratios.accepts(
            key, value * ratio, value, largest=self._largest, may_vary=self._may_vary
        )

    def answers(self, *ratios: float) -> list[bool]:
        return [self.accepts(ratio) for ratio in ratios]


@pytest.mark.parametrize("factor", [1.0, 0.25, 1000.0, -1.0])
def test_a_constant_factor_is_one_of_a_loss(factor: float) -> None:
    call = Call()
    assert call.answers(factor, factor, factor * 1.0001) == [True] * 3
    assert call.ratios.first("call") == pytest.approx(factor)


@pytest.mark.parametrize(
    ("kind", "ratios", "answers"),
    [
        ({}, (0.5, 0.7, 0.5), [True, False, False]),  # rejected for good
        ({}, (math.inf,), [False]),
        ({}, (-math.inf,), [False]),
        ({}, (0.0,), [False]),
        ({"may_vary": True}, (1, 0.1, 0.7), [True] * 3),
        ({"may_vary": True}, (0.5, 1.5), [True, False]),
        ({"may_vary": True}, (0.5, -0.5), [True, False]),
        ({"may_vary": True}, (0.5, math.inf), [True, False]),
        ({"may_vary": True}, (0.5, 0.0), [True, False]),
        ({"largest": 5.0}, (1.2, 4.9, 30.0), [True] * 3),  # falls while the other part stays
        ({"largest": 5.0}, (5.1,), [False]),
        ({"largest": 5.0}, (0.9,), [False]),
        ({"largest": 5.0}, (1.5, 0.9), [True, False]),
        ({"largest": 5.0}, (1.5, math.inf), [True, False]),
        ({"largest": 5.0}, (-2.0,), [False]),
    ],
)
def test_which_ratios_are_accepted(
    kind: dict[str, Any], ratios: tuple[float, ...], answers: list[bool]
) -> None:
    assert Call(**kind).answers(*ratios) == answers


def test_each_call_has_its_own_ratio() -> None:
    call = Call()
    call.answers(0.5, 0.7)
    assert call.accepts(3, "other")
    assert call.ratios.first("other") == pytest.approx(3)
    assert call.ratios.first("unknown") == 1


def test_0_of_0_says_nothing() -> None:
    ratios, zero = LossRatios(), torch.zeros(1)
    for loss, value in ((zero, zero), (torch.ones(1), 2 * torch.ones(1)), (zero, zero)):
        assert ratios.accepts("call", loss, value, largest=None, may_vary=False)
    assert ratios.first("call") == 0.5


def test_the_loss_can_be_trained_on_as_before() -> None:
    value = torch.ones((), requires_grad=True)
    loss = 3 * value
    assert LossRatios().accepts("call", loss, value, largest=None, may_vary=False)
    loss.backward()
    assert value.grad == 3
