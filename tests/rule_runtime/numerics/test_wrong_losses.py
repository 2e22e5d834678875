"""Wrong losses as torch computes them are known again, and right ones are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rule_runtime.numerics.wrong_classes import classes_left_out, other_axis
from rule_runtime.numerics.wrong_formulas import is_size_of_mean, wrong_formula

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(32, 4, generator=GENERATOR)
NUMBERS = torch.randn(32, 4, generator=GENERATOR)
BITS = (torch.rand(32, 4, generator=GENERATOR) < 0.4).float()
CLASSES = torch.arange(32) % 4


def bce(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, targets)


WRONG: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor]] = {
    "of yes alone": (lambda o, t: -(t * torch.sigmoid(o).log()).mean(), BITS),
    "takes yes for no": (lambda o, t: bce(o, 1 - t), BITS),
    "a hinge": (lambda o, t: (1 - t * o).clamp(min=0).mean(), BITS),
    "log(1 + exp(-t o))": (lambda o, t: F.softplus(-t * o).mean(), BITS),
    "with targets below 0": (bce, NUMBERS),
    "column 2 of 4": (lambda o, t: F.mse_loss(o[:, 2], t[:, 2]), NUMBERS),
    "the errors as parts": (lambda o, t: ((o - t) / t).abs().mean(), NUMBERS),
    "means of all outputs": (lambda o, t: (o.mean() - t.mean()).square(), NUMBERS),
}
RIGHT: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor]] = {
    "yes and no": (bce, BITS),
    "squares": (F.mse_loss, NUMBERS),
    "squares of bits": (F.mse_loss, BITS),
    "distances": (F.l1_loss, NUMBERS),
    "smooth": (F.smooth_l1_loss, NUMBERS),
    "hinge of signs": (lambda o, t: (1 - (2 * t - 1) * o).clamp(min=0).mean(), BITS),
    "focal": (lambda o, t: ((o.sigmoid() - t).abs() ** 2 * F.softplus(-o)).mean(), BITS),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_formula_is_known_again(name: str) -> None:
    loss, targets = WRONG[name]
    found = wrong_formula(OUTPUTS.numpy(), targets.numpy(), float(loss(OUTPUTS, targets)))
    assert found is not None
    assert name in found[0]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_formula_is_none_of_them(name: str) -> None:
    loss, targets = RIGHT[name]
    assert wrong_formula(OUTPUTS.numpy(), targets.numpy(), float(loss(OUTPUTS, targets))) is None


@pytest.mark.parametrize("sign", [1, -1])
def test_the_size_of_the_mean_has_a_sign(sign: int) -> None:
    outputs = NUMBERS + sign * 0.1 + 0.5 * OUTPUTS - 0.5 * OUTPUTS.mean()
    loss = float((outputs - NUMBERS).mean().abs())
    assert is_size_of_mean(outputs.numpy(), NUMBERS.numpy(), loss) == sign
    assert is_size_of_mean(outputs.numpy(), NUMBERS.numpy(), float(loss) + 0.01) == 0


def test_a_softmax_along_another_axis() -> None:
    rows = -OUTPUTS.log_softmax(0)[torch.arange(32), CLASSES].mean()
    assert other_axis(OUTPUTS.numpy(), CLASSES.numpy(), float(rows)) == (0, 1)
    right = float(F.cross_entropy(OUTPUTS, CLASSES))
    assert other_axis(OUTPUTS.numpy(), CLASSES.numpy(), right) is None


def test_classes_that_are_left_out() -> None:
    without = float(F.cross_entropy(OUTPUTS, CLASSES, ignore_index=3))
    assert classes_left_out(OUTPUTS.numpy(), CLASSES.numpy(), without) == [3]
    apart = OUTPUTS - 9 * torch.tensor([0.0, 0.0, 1.0, 1.0])
    loss = float(F.cross_entropy(apart, CLASSES, weight=torch.tensor([1.0, 1.0, 0.0, 0.0])))
    assert classes_left_out(apart.numpy(), CLASSES.numpy(), loss) == [2, 3]
    right = float(F.cross_entropy(OUTPUTS, CLASSES))
    assert classes_left_out(OUTPUTS.numpy(), CLASSES.numpy(), right) is None
    weighted = float(F.cross_entropy(OUTPUTS, CLASSES, weight=torch.tensor([1.0, 2.0, 3.0, 4.0])))
    assert classes_left_out(OUTPUTS.numpy(), CLASSES.numpy(), weighted) is None
    assert classes_left_out(OUTPUTS.numpy(), CLASSES.numpy(), np.nan) is None
