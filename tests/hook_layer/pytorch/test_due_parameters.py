"""The parameters that are due are looked for again only if the model has changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

import hook_layer.pytorch as smd
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.parameters import DueParameters
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.recording_sink import RecordingSink


class Model:
    """A registered model, and what is due of it."""

    def __init__(self, net: nn.Module | None = None) -> None:
        self.net = net or nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        self.sink = RecordingSink("bias")
        self.registered = RegisteredModules()
        self.registered.add_model(self.net)
        self.due = DueParameters(self.registered, self.sink)  # plans only

    def names(self) -> list[str]:
        """Return the names of what is due in another step."""
        self.due.check_again()
        parameters = self.due.parameters(self.net)
        gradients = self.due.gradients(self.net)
        for name, (parameter, _) in parameters.items():
            assert parameter is self.net.get_parameter(name.partition("_")[2])
        return [*parameters, *gradients]


BOTH = ["Sequential_0.weight", "Sequential_1.weight"]
GRADIENTS = [f"gradient/{name}" for name in BOTH]


def test_an_unchanged_model_is_not_looked_through_again() -> None:
    model = Model()
    model.names()
    planned = model.sink.num_planned
    assert model.names() == [*BOTH, *GRADIENTS]
    assert model.sink.num_planned == planned


def _replaced(net: nn.Module) -> None:
    net.get_submodule("0").weight = nn.Parameter(torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (_replaced, [*BOTH, *GRADIENTS]),
        (lambda net: net.get_parameter("0.weight").requires_grad_(False), [*BOTH, GRADIENTS[1]]),
        (lambda net: net.append(nn.Linear(1, 1)), None),
        (lambda net: net.pop(1), [BOTH[0], GRADIENTS[0]]),
        (lambda net: net[0].register_parameter("scale", nn.Parameter(torch.ones(1))), None),
    ],
)
def test_a_change_is_seen(change: Callable[[nn.Module], object], names: list[str] | None) -> None:
    model = Model()
    model.names()
    change(model.net)
    assert model.names() == names or (names is None and len(model.names()) == 6)


def test_tensors_that_a_call_swaps_in_are_no_weights(trial: WrittenTrial) -> None:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    save = smd.SaveConfig(save_interval=1)
    collections = ["weights", "gradients", "losses"]
    hook = smd.Hook(trial.uri, save_config=save, include_collections=collections)
    hook.register_module(net)
    weights = []
    for _ in range(3):
        weights.append(net.weight.detach().clone())
        others = {name: 2 * parameter for name, parameter in net.named_parameters()}
        functional_call(net, others, (torch.ones(1, 2),)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    hook.close()
    assert "Linear_weight" not in trial.names(0)  # its parameters are not known yet
    for step in (1, 2):
        values = trial.values(step)
        np.testing.assert_array_equal(values["Linear_weight"], weights[step])
        np.testing.assert_array_equal(values["gradient/Linear_weight"], np.full((2, 2), 2.0))


def test_the_model_is_not_kept() -> None:
    model = Model()
    model.names()
    known = weakref.ref(model.net)
    del model.net
    gc.collect()
    assert known() is None
