"""Dropout, normalisation, flatten, identity and reshape hide no activation, and no lack of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rule_runtime.engine.registry import create_rule
from tests.rule_runtime.rules.torch_runs import findings, statistics_hook, train

RULES = ("MissingActivation", "DoubleActivation", "OutputContract", "VanishingGradient")
NUM_STEPS = 12
ROWS = 32
BINARY: tuple[Any, ...] = (nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits)
CLASSES: tuple[Any, ...] = (nn.CrossEntropyLoss(), F.cross_entropy)


def found(model: nn.Module, loss: Any, folder: Path, *, images: bool = False) -> dict[str, str]:
    """Train a model for some steps; return the first finding of each rule."""

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(ROWS, 1, 8, 8) if images else torch.randn(ROWS, 16)
        labels = torch.randint(0, 4, (ROWS,))
        return x, labels[:, None] % 2.0 if loss in BINARY else labels

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train(statistics_hook(folder, model), model, batch, loss, optimizer, steps=NUM_STEPS)
    evidence = findings(folder, [(name, create_rule(name, {})) for name in RULES])
    return {name: each.sentence for name, each in evidence.items()}


def mlp(*between: nn.Module, outputs: int = 4, after: tuple[nn.Module, ...] = ()) -> nn.Module:
    """Return two linear layers with modules between and after them."""
    return nn.Sequential(nn.Linear(16, 32), *between, nn.Linear(32, outputs), *after)


class Functions(nn.Module):
    """Two linear layers, and functions between and after them."""

    def __init__(
        self, between: Callable[[Tensor], Tensor], after: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.enter, self.norm, self.out = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)
        self.between, self.after = between, after

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.between(self.norm(self.enter(x))))
        return scores if self.after is None else self.after(scores)


DISGUISES = {
    "plain": lambda one: (one,),
    "after dropout": lambda one: (nn.Dropout(0.2), one),
    "before dropout": lambda one: (one, nn.Dropout(0.2)),
    "after identity": lambda one: (nn.Identity(), one, nn.Identity()),
    "reshaped": lambda one: (nn.Unflatten(1, (-1, 1)), one, nn.Flatten()),
}
TWICE = {"OutputContract", "DoubleActivation"}


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("loss", CLASSES)
@pytest.mark.parametrize("activation", [nn.Softmax(1), nn.Tanh()])
def test_an_activation_before_a_loss_of_logits(
    activation: nn.Module, loss: Any, disguise: str, tmp_path: Path
) -> None:
    if isinstance(activation, nn.Tanh) and disguise == "before dropout":
        pytest.skip("extremes of a dropped tanh are those of other functions, too")
    model = mlp(nn.ReLU(), after=DISGUISES[disguise](activation))
    assert found(model, loss, tmp_path).keys() & TWICE


@pytest.mark.parametrize("disguise", ["plain", "after dropout", "after identity"])
@pytest.mark.parametrize("loss", BINARY)
def test_a_sigmoid_before_a_loss_of_logits(loss: Any, disguise: str, tmp_path: Path) -> None:
    model = mlp(nn.ReLU(), outputs=1, after=DISGUISES[disguise](nn.Sigmoid()))
    assert "DoubleActivation" in found(model, loss, tmp_path)


def test_a_softmax_among_functions(tmp_path: Path) -> None:
    model = Functions(F.relu, lambda x: F.softmax(F.dropout(x, 0.2), 1))
    assert "OutputContract" in found(model, F.cross_entropy, tmp_path)


@pytest.mark.parametrize(
    "between",
    [
        (nn.Dropout(0.2),),
        (nn.Identity(),),
        (nn.Unflatten(1, (2, 16)), nn.Flatten()),
        (nn.BatchNorm1d(32),),
        (nn.LayerNorm(32, elementwise_affine=False), nn.Dropout(0.1)),
        (nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Identity()),
    ],
)
def test_a_linear_layer_that_goes_into_another_one(
    between: tuple[nn.Module, ...], tmp_path: Path
) -> None:
    assert "MissingActivation" in found(mlp(*between), CLASSES[0], tmp_path)


def test_a_linear_layer_that_goes_into_another_one_by_functions(tmp_path: Path) -> None:
    for name, between in {
        "dropout": lambda x: F.dropout(x, 0.1),
        "view": lambda x: x.view(-1, 2, 16).flatten(1),
    }.items():
        assert "MissingActivation" in found(Functions(between), F.cross_entropy, tmp_path / name)


@pytest.mark.parametrize(
    "between",
    [
        (nn.BatchNorm1d(32), nn.Dropout(0.2), nn.ReLU()),
        (nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(0.2)),
        (nn.Dropout(0.2), nn.Identity(), nn.Tanh()),
        (nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1)),
        (nn.SELU(), nn.AlphaDropout(0.1)),
        (nn.PReLU(), nn.Dropout(0.1)),
    ],
)
def test_healthy_layers(between: tuple[nn.Module, ...], tmp_path: Path) -> None:
    assert not found(mlp(*between), CLASSES[0], tmp_path)


@pytest.mark.parametrize(
    "between", [lambda x: F.dropout(F.relu(x), 0.2), lambda x: F.relu(F.dropout(x, 0.2)), F.gelu]
)
def test_healthy_functions(between: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    assert not found(Functions(between), F.cross_entropy, tmp_path)


def test_a_relu_that_is_pooled_before_the_loss(tmp_path: Path) -> None:
    """As in SqueezeNet, whose last layer is a convolution."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(8, 4, 1), nn.ReLU())
    pooled = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert not found(pooled, CLASSES[0], tmp_path / "pooled", images=True)
    model = mlp(nn.ReLU(), after=(nn.ReLU(), nn.Dropout(0.2)))
    assert "OutputContract" in found(model, CLASSES[0], tmp_path / "linear")


@pytest.mark.parametrize(
    ("dead", "loss", "where"),
    [
        ("2", CLASSES[0], "Sequential_2.bias: .* from this layer back to the first one"),
        ("0", CLASSES[0], "Sequential_0.bias: .* from this layer back to the first one"),
        ("", lambda *of: 0 * F.cross_entropy(*of), "all gradients vanish, in the loss"),
    ],
)
def test_zero_gradients_name_where_they_begin(
    dead: str, loss: Any, where: str, tmp_path: Path
) -> None:
    model = nn.Sequential(
        *(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    )
    if dead:
        nn.init.constant_(model.get_submodule(dead).bias, -100.0)
    sentence = found(model, loss, tmp_path)["VanishingGradient"]
    assert re.search(where, sentence)
