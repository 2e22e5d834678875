"""Trainings whose loss jumps in the first steps: learning rates far too high, and healthy twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from rule_runtime.configuration.packs import PACKS
from tests.rule_runtime.rules.torch_runs import (
    Batches,
    Loss,
    findings,
    recommended_hook,
    train,
)

JUDGES = (
    *("LossDiverging", "LossSpike", "OscillatingLoss", "PlateauedLoss"),
    *("LearningRateTooHigh", "LearningRateTooLow"),
)
STEPS = 50
ALL_OF_JUMP = {"LossDiverging", "LossSpike", "LearningRateTooHigh"}

Parameters = Iterable[nn.Parameter]
Optimizer = Callable[[Parameters], torch.optim.Optimizer]


def found(
    folder: Path, model: nn.Module, batches: Batches, loss: Loss, optimizer: Optimizer
) -> set[str]:
    """Return the rules of curves that find a fault in a training."""
    hook = recommended_hook(folder, model)
    updates = optimizer([each for each in model.parameters() if each.requires_grad])
    train(hook, model, batches, loss, updates, steps=STEPS)
    rules = PACKS["recommended"].rules().items()
    return {*findings(folder, [(name, rule) for name, rule in rules if name in JUDGES])}


def mlp(outputs: int, *, hidden: int = 16, std: float | None = None) -> nn.Sequential:
    layers = [nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(hidden, outputs))
    for each in model.parameters() if std else ():
        nn.init.normal_(each, 0, std) if each.dim() > 1 else nn.init.zeros_(each)
    return model


def two_classes(rows: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(rows, 8)
    return inputs, (inputs[:, :2].sum(1) > 0).long()


def numbers(
    rows: int = 32, shift: float = 0.0, spread: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(rows, 8)
    return inputs, shift + spread * inputs[:, :2].sum(1, keepdim=True)


def fine_tuned() -> nn.Sequential:
    """Return a body that learned a task, and a new head with weights of about 0.02."""
    body, head = mlp(24, hidden=24), nn.Linear(24, 2)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(60):
        inputs, classes = two_classes()
        optimizer.zero_grad()
        F.cross_entropy(head(body(inputs)), classes).backward()
        optimizer.step()
    new = nn.Linear(24, 2)
    nn.init.normal_(new.weight, 0, 0.02)
    return nn.Sequential(body, new)


@pytest.mark.parametrize(("rate", "expected"), [(1.0, ALL_OF_JUMP), (1e-3, set()), (1e-2, set())])
def test_a_fine_tune_with_a_rate_far_too_high(
    rate: float, expected: set[str], tmp_path: Path
) -> None:
    optimizer = partial(torch.optim.AdamW, lr=rate)
    names = found(tmp_path, fine_tuned(), two_classes, F.cross_entropy, optimizer)
    assert names == expected


@pytest.mark.parametrize(("rate", "expected"), [(0.163, {"LearningRateTooHigh"}), (0.01, set())])
def test_small_weights_that_a_high_rate_throws_far_away(
    rate: float, expected: set[str], tmp_path: Path
) -> None:
    """The loss is low by chance after a step, then jumps, and the units are dead."""
    torch.manual_seed(4)
    model, (inputs, targets) = mlp(1, std=0.01), numbers(64, shift=1.8, spread=0.4)
    optimizer = partial(torch.optim.AdamW, lr=rate)
    names = found(tmp_path, model, lambda: (inputs, targets), F.mse_loss, optimizer)
    assert names == expected


def normalised() -> nn.Sequential:
    first = (nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
    return nn.Sequential(*first, nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))


def with_zero_head() -> nn.Sequential:
    model = mlp(1, hidden=32)
    nn.init.zeros_(model[-1].weight)
    return model


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank adapter, whose second matrix begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 16).requires_grad_(requires_grad=False)
        self.down, self.up = nn.Linear(8, 4, bias=False), nn.Linear(4, 16, bias=False)
        nn.init.zeros_(self.up.weight)
        self.head = nn.Linear(16, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head((self.base(inputs) + self.up(self.down(inputs))).relu())
        return scores


HEALTHY: dict[str, tuple[Callable[[], nn.Module], Optimizer]] = {
    "a jump of RMSprop": (normalised, partial(torch.optim.RMSprop, lr=0.04)),
    "a jump of RMSprop after a zero layer": (with_zero_head, partial(torch.optim.RMSprop, lr=0.02)),
    "momentum": (lambda: mlp(1), partial(torch.optim.SGD, lr=0.05, momentum=0.9)),
    "a zero layer": (with_zero_head, partial(torch.optim.AdamW, lr=1e-2)),
    "an adapter": (Adapted, partial(torch.optim.AdamW, lr=1e-2)),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_first_jump(kind: str, tmp_path: Path) -> None:
    make, optimizer = HEALTHY[kind]
    assert not found(tmp_path, make(), numbers, F.mse_loss, optimizer)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("loss", [F.mse_loss, lambda o, t: (o - t).square().mean()])
def test_batches_of_few_rows(rows: int, loss: Loss, tmp_path: Path) -> None:
    """A first loss of almost 0 is luck, and a small model passes zero on its way."""
    model = nn.Linear(8, 4)
    slopes, random = torch.randn(8, 4), torch.Generator().manual_seed(rows)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(rows, 8, generator=random)
        return inputs, inputs @ slopes + torch.randn(rows, 4, generator=random)

    optimizer = partial(torch.optim.SGD, lr=0.02)
    assert not found(tmp_path, model, batch, loss, optimizer)


def test_a_line_fitted_by_hand(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    nn.init.normal_(model.weight, 0, 0.01)
    slopes = torch.tensor([[2.0], [-3.4]])

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(1, 2)
        return inputs, inputs @ slopes + 4.2

    optimizer = partial(torch.optim.SGD, lr=0.03)
    loss: Loss = lambda outputs, targets: ((outputs - targets) ** 2).mean()  # noqa: E731
    assert not found(tmp_path, model, batch, loss, optimizer)
