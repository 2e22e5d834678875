"""What the hook records of the modules of a model, once per run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hook_layer.format.collections_file import LayerKind
from hook_layer.pytorch import Hook
from hook_layer.pytorch.collections import layer_kinds
from hook_layer.testing.written_trial import WrittenTrial


class Own(nn.Tanh):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


@pytest.mark.parametrize(
    ("module", "activation"),
    [
        (nn.Tanh(), "tanh"),
        (nn.ReLU6(), "relu6"),
        (nn.Hardtanh(), "hard_tanh"),
        (nn.Hardtanh(0, 5), ""),
        (nn.Linear(1, 1), "linear"),
        (nn.Conv1d(1, 1, 1), ""),
        (Own(), ""),
    ],
)
def test_the_activation_of_a_module_is_known_by_its_class(
    module: nn.Module, activation: str
) -> None:
    expected = {"x": LayerKind(type(module).__name__, activation)} if activation else {}
    assert layer_kinds({module: "x"}) == expected


def test_activations_and_dropout_are_in_the_collections_file(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Tanh())
    with Hook(str(tmp_path), include_collections=["losses"]) as hook:
        hook.register_module(model)
        nn.functional.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 3)).backward()
    layers = WrittenTrial(str(tmp_path)).collections().layers
    assert layers == {
        "0": LayerKind("Linear", "linear"),
        "1": LayerKind("Dropout"),
        "2": LayerKind("Tanh", "tanh"),
    }
