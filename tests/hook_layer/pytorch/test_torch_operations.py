"""How many operations of torch a hook adds to a step: what it costs on any device, without a clock.

An operation is a kernel launch on an accelerator, or more; views are left out.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

INTERVAL = 4
VIEWS = ("aten::view", "aten::as_strided", "aten::select", "aten::detach")  # launch nothing
SYNCHRONISING = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero")
COLLECTIONS = [
    *("weights", "biases", "gradients", "losses", "loss_inputs"),
    *("relu_output", "layer_inputs", "optimizer_steps"),
]


def operations(trial: WrittenTrial | None, num_layers: int) -> list[Counter[str]]:
    """Return the operations of a saved step and of one that is not saved, after some others."""
    torch.manual_seed(0)
    layers = [layer for _ in range(num_layers) for layer in (nn.Linear(4, 4), nn.ReLU())]
    model, criterion = nn.Sequential(*layers), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = None
    if trial is not None:
        save_config = smd.SaveConfig(save_interval=INTERVAL)
        hook = smd.Hook(
            trial.uri,
            save_config=save_config,
            include_collections=COLLECTIONS,
            include_regex=["Linear.*_output"],
        )
        hook.register_module(model)
        hook.register_loss(criterion)
        hook.register_optimizer(optimizer)
    found = []
    for step in range(8 * INTERVAL + 2):
        is_looked_at = step >= 8 * INTERVAL
        looking = profile(activities=[ProfilerActivity.CPU]) if is_looked_at else nullcontext()
        with looking as looked:
            optimizer.zero_grad()
            criterion(model(torch.ones(3, 4)), torch.zeros(3, dtype=torch.long)).backward()
            optimizer.step()
        if looked is not None:
            events = [event for event in looked.events() if event.name.startswith("aten::")]
            found.append(Counter(event.name for event in events if event.name not in VIEWS))
    if hook is not None:
        hook.close()
        assert not hook.report().errors
    return found


@pytest.fixture(scope="module")
def plain() -> dict[int, list[Counter[str]]]:
    return {num_layers: operations(None, num_layers) for num_layers in (2, 20)}


def test_a_step_that_is_not_saved_has_no_further_operation(
    trial: WrittenTrial, plain: dict[int, list[Counter[str]]]
) -> None:
    assert operations(trial, 2)[1] == plain[2][1]


def test_a_saved_step_has_the_same_further_operations_however_many_layers_there_are(
    plain: dict[int, list[Counter[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    more = {
        num_layers: operations(WrittenTrial(str(tmp_path_factory.mktemp("run"))), num_layers)[0]
        - plain[num_layers][0]
        for num_layers in (2, 20)
    }
    assert 0 < more[2].total() == more[20].total() < 100


def test_a_saved_step_waits_for_no_device(
    trial: WrittenTrial, plain: dict[int, list[Counter[str]]]
) -> None:
    saved = operations(trial, 2)[0]
    assert not any(saved[name] - plain[2][0][name] for name in SYNCHRONISING)
