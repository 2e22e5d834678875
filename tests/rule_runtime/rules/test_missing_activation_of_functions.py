"""Models with functions that no hook sees between their modules: `F.relu`, sums, concatenations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rule_runtime.engine.evidence import Evidence
from rule_runtime.rules.missing_activation import MissingActivation
from tests.rule_runtime.rules.torch_runs import findings, statistics_hook, train

NUM_STEPS = 4


def conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


class Layers(nn.Module):
    """A model with some layers, by name."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)


class Block(Layers):
    def __init__(self, width: int = 8, *, has_skip: bool = True) -> None:
        skip = {"skip": nn.Identity()} if has_skip else {}
        bns = {"bn1": nn.BatchNorm2d(width), "bn2": nn.BatchNorm2d(width)}
        super().__init__(conv1=conv(width, width), conv2=conv(width, width), **bns, **skip)

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + (self.skip(x) if hasattr(self, "skip") else x))


class ResNet(Layers):
    def __init__(self, *, has_skip: bool) -> None:
        blocks = {"b1": Block(has_skip=has_skip), "b2": Block(has_skip=has_skip)}
        super().__init__(stem=conv(1, 8), **blocks, head=nn.Linear(8, 10))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.b2(F.max_pool2d(self.b1(self.stem(x)), 2)).mean((2, 3)))
        return scores


class SkipFirst(Block):
    """The identity is computed before the layers that it goes around."""

    def forward(self, x: Tensor) -> Tensor:
        around = self.skip(x)
        return F.relu(around + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class SkippingFirst(ResNet):
    def __init__(self) -> None:
        super().__init__(has_skip=True)
        self.b1, self.b2 = SkipFirst(), SkipFirst()


class Flat(Layers):
    """A sum around two layers, all in one forward()."""

    def __init__(self) -> None:
        super().__init__(stem=conv(1, 8), a=conv(8, 8), b=conv(8, 8), head=nn.Linear(128, 10))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = F.max_pool2d(F.relu(h + self.b(F.relu(self.a(h)))), 2)
        return F.log_softmax(self.head(h.flatten(1)), 1)


class PreActivation(Layers):
    def __init__(self) -> None:
        norms = {f"bn{at}": nn.BatchNorm2d(8) for at in range(3)}
        layers = {"stem": conv(1, 8), "a": conv(8, 8), "b": conv(8, 8), "shortcut": conv(8, 8)}
        super().__init__(**layers, **norms, head=nn.Linear(8, 10))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = self.shortcut(h) + self.b(F.relu(self.bn1(self.a(F.relu(self.bn0(h))))))
        scores: Tensor = self.head(F.relu(self.bn2(h)).mean((2, 3)))
        return scores


class Transformer(Layers):
    """Attention and a feed-forward layer, normalised after each sum, on the rows of a picture."""

    def __init__(self, *, is_active: bool = True) -> None:
        wide = {"up": nn.Linear(16, 32), "down": nn.Linear(32, 16)}
        norms = {"n1": nn.LayerNorm(16), "n2": nn.LayerNorm(16)}
        layers = {"embed": nn.Linear(8, 16), "qkv": nn.Linear(16, 48), "out": nn.Linear(16, 16)}
        super().__init__(**layers, **wide, **norms, head=nn.Linear(16, 10))
        self.is_active = is_active

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.squeeze(1))
        q, k, v = self.qkv(h).chunk(3, -1)
        h = self.n1(h + self.out(F.scaled_dot_product_attention(q, k, v)))
        wide = self.up(h)
        h = self.n2(h + self.down(F.gelu(wide) if self.is_active else wide))
        scores: Tensor = self.head(h.mean(1))
        return scores


class UNet(Layers):
    def __init__(self) -> None:
        layers = {"enter": conv(1, 8), "down": conv(8, 8), "low": conv(8, 8), "up": conv(16, 8)}
        super().__init__(**layers, head=nn.Linear(8, 10))

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        low = F.max_pool2d(F.relu(self.down(h)), 2)
        low = F.interpolate(F.relu(self.low(low)), scale_factor=2)
        scores: Tensor = self.head(F.relu(self.up(torch.cat([h, low], 1))).mean((2, 3)))
        return scores


class TwoHeads(Layers):
    """What goes into the head is returned, too, for a second loss."""

    def __init__(self) -> None:
        super().__init__(features=nn.Linear(64, 32), head=nn.Linear(32, 10))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.features(x.flatten(1))
        return self.head(h), h


class Mlp(Layers):
    def __init__(self, *, is_active: bool) -> None:
        wide = {"fc1": nn.Linear(64, 32), "fc2": nn.Linear(32, 32), "fc3": nn.Linear(32, 32)}
        super().__init__(**wide, fc4=nn.Linear(32, 10))
        self.is_active = is_active

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc2(F.relu(self.fc1(x.flatten(1))))
        h = F.relu(self.fc3(torch.tanh(h) if self.is_active else h))
        return F.log_softmax(self.fc4(h), 1)


class Positive(Layers):
    """A ReLU that has no effect: the layer before it has positive outputs."""

    def __init__(self) -> None:
        super().__init__(first=nn.Linear(64, 32), second=nn.Linear(32, 10))
        nn.init.constant_(self.first.bias, 10.0)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.second(F.relu(self.first(x.flatten(1))))
        return scores


class PositivePool(Layers):
    """A ReLU that has no effect: the largest of 64 numbers is positive."""

    def __init__(self) -> None:
        super().__init__(a=conv(1, 8), pool=nn.AdaptiveMaxPool2d(1), head=nn.Linear(8, 10))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(F.relu(self.pool(self.a(x))).flatten(1))
        return scores


class Cnn(Layers):
    def __init__(self, *, is_active: bool) -> None:
        layers = {"a": conv(1, 8), "b": conv(8, 8), "c": conv(8, 8)}
        super().__init__(**layers, head=nn.Linear(8, 10))
        self.is_active = is_active

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        h = F.max_pool2d(F.relu(self.b(F.relu(h) if self.is_active else h)), 2)
        scores: Tensor = self.head(F.adaptive_avg_pool2d(self.c(h), 1).flatten(1))
        return scores


def found(model: nn.Module, folder: Path) -> Evidence | None:
    """Train a model for some steps; return what the rule finds in what its hook saved."""
    hook, criterion = statistics_hook(folder, model), nn.CrossEntropyLoss()
    hook.register_loss(criterion)

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        return criterion(outputs[0] if isinstance(outputs, tuple) else outputs, targets)

    def batch() -> tuple[Tensor, Tensor]:
        return torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train(hook, model, batch, loss, optimizer, steps=NUM_STEPS)
    return findings(folder, [("rule", MissingActivation())]).get("rule")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "model",
    [
        lambda: ResNet(has_skip=True),
        lambda: ResNet(has_skip=False),
        SkippingFirst,
        Flat,
        PreActivation,
        Transformer,
        UNet,
        TwoHeads,
        Positive,
        PositivePool,
        lambda: Mlp(is_active=True),
        lambda: Cnn(is_active=True),
    ],
)
def test_healthy_models_with_functions_are_left_alone(
    model: Any, seed: int, tmp_path: Path
) -> None:
    torch.manual_seed(seed)
    assert found(model(), tmp_path) is None


@pytest.mark.parametrize(
    ("model", "pair"),
    [
        (lambda: Mlp(is_active=False), "fc2 and fc3"),
        (lambda: Cnn(is_active=False), "a and b"),
        (lambda: Transformer(is_active=False), "up and down"),
    ],
)
def test_an_activation_that_was_forgotten_among_functions_is_found(
    model: Any, pair: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    evidence = found(model(), tmp_path)
    assert evidence is not None
    assert evidence.count == NUM_STEPS - 2
    assert f"{pair} are one linear layer" in evidence.sentence
