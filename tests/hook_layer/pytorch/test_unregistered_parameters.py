"""Layers in plain lists: trained by nobody, and seen all the same."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hook_layer.pytorch as smd
from hook_layer.storage import open_store
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.engine.stored_run import evaluate_stored_run
from rule_runtime.rules.dead_optimizer import DeadOptimizer


class Net(nn.Module):
    """Two layers, one of them in whatever it is put into.

    Args:
        container: From a layer to what the model keeps.
    """

    def __init__(self, container: Any) -> None:
        super().__init__()
        layer = nn.Linear(4, 4)
        self.blocks = container(layer)
        self.call = layer.forward
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores."""
        scores: Tensor = self.head(self.call(inputs))
        return scores


def train(trial: WrittenTrial, net: nn.Module, num_steps: int = 8) -> None:
    torch.manual_seed(0)
    hook = smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "biases", "gradients"],
    )
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(num_steps):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    hook.close()
    assert not hook.report().errors


@pytest.mark.parametrize(
    ("container", "name"),
    [
        (lambda layer: [layer], "blocks.0"),
        (lambda layer: (None, layer), "blocks.1"),
        (lambda layer: {"first": layer}, "blocks.first"),
    ],
)
def test_a_layer_in_a_plain_container(
    trial: WrittenTrial, container: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "stepwatch"):
        train(trial, Net(container))
    assert f"Net_{name}.weight" not in trial.values(0)
    for step in range(1, 8):
        assert {f"Net_{name}.weight", f"gradient/Net_{name}.bias"} <= trial.values(step).keys()
    messages = [record.getMessage() for record in caplog.records if "nn.ModuleList" in record.msg]
    assert len(messages) == 1
    assert f"{name}.weight, {name}.bias of Net" in messages[0]


def test_a_rule_finds_that_nobody_trains_it(trial: WrittenTrial) -> None:
    train(trial, Net(lambda layer: [layer]))
    state = evaluate_stored_run(open_store(trial.uri), [("dead", DeadOptimizer())])["dead"]
    assert state.evidence is not None
    assert "Net_blocks.0" in state.evidence.sentence


def test_parameters_in_a_list(trial: WrittenTrial) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = [nn.Parameter(torch.ones(4))]
            self.head = nn.Linear(4, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            scores: Tensor = self.head(inputs * self.scales[0])
            return scores

    train(trial, Scaled())
    assert "gradient/Scaled_scales.0" in trial.values(7)


def test_a_teacher_that_gets_no_gradient_is_left_alone(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    class Student(Net):
        def __init__(self) -> None:
            super().__init__(lambda layer: nn.ModuleList([layer]))
            self.teacher = [nn.Linear(4, 4)]

        def forward(self, inputs: Tensor) -> Tensor:
            with torch.no_grad():
                known = self.teacher[0](inputs)
            return super().forward(inputs + known)

    with caplog.at_level(logging.WARNING, "stepwatch"):
        train(trial, Student())
    assert not [name for name in trial.values(7) if "teacher" in name]
    assert "nn.ModuleList" not in caplog.text


def test_what_is_listed_as_well_is_not_saved_twice(trial: WrittenTrial) -> None:
    class Both(Net):
        def __init__(self) -> None:
            super().__init__(lambda layer: [layer])
            self.first = self.blocks[0]

    train(trial, Both())
    assert {"Both_first.weight", "Both_head.weight"} == {
        name for name in trial.values(7) if name.endswith("weight") and "gradient" not in name
    }
