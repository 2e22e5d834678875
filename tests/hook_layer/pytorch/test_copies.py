"""Copies of a watched model, in this process and in others."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial


def watched(trial: WrittenTrial) -> tuple[smd.Hook, nn.Module, nn.Module]:
    """Return a hook in its first step, and its model and loss with hooks on every module."""
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), save_all=True)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    loss = nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    train(net, loss)
    return hook, net, loss


def train(net: nn.Module, loss: nn.Module) -> float:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.zero_grad()
    value = loss(net(torch.ones(5, 3)), torch.zeros(5, 2))
    value.backward()
    optimizer.step()
    return float(value.detach())


def saved(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda value: pickle.loads(pickle.dumps(value)),
        lambda value: pickle.loads(ForkingPickler.dumps(copy.deepcopy(value))),
        saved,
        lambda value: copy.deepcopy(pickle.loads(pickle.dumps(copy.deepcopy(value)))),
    ],
    ids=["deepcopy", "pickle", "multiprocessing", "torch.save", "of a copy"],
)
def test_a_copy_trains_alike_and_is_not_watched(
    trial: WrittenTrial, duplicate: Callable[[Any], Any]
) -> None:
    hook, net, loss = watched(trial)
    net2, loss2 = duplicate(net), duplicate(loss)
    value = train(net2, loss2)
    assert hook.report().steps_seen == 1
    assert train(net, loss) == value
    hook.close()
    assert list(trial.indexes()) == [0, 1]
    assert trial.names(0) == trial.names(1)
    assert "0_output_0" in trial.names(0)
    assert not hook.report().errors
    assert not net._forward_pre_hooks
    assert not loss._forward_hooks


def noted(*_: Any) -> None:
    pass


def content(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def copies(hook: Callable[[nn.Module, nn.Module], None]) -> list[bytes]:
    """Return what several ways of copying make of a model in a step, and of what trains it."""
    torch.manual_seed(0)
    torch.utils.hooks.RemovableHandle.next_id = 0
    net, loss = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), nn.MSELoss()
    hook(net, loss)
    net.register_forward_hook(noted)
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaled = scaler.scale(loss(net(torch.ones(5, 3)), torch.zeros(5, 2)))
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
    graph = torch.fx.symbolic_trace(copy.deepcopy(net))
    exported = torch.export.export(net.eval(), (torch.ones(5, 3),))
    kept = [*vars(scaled), *(name for part in copy.deepcopy(net).modules() for name in vars(part))]
    everything = net, copy.deepcopy(net), loss, optimizer, schedule, scaler, graph
    average = torch.optim.swa_utils.AveragedModel(net)
    values = [content(value) for value in (*everything, average, copy.deepcopy(graph))]
    traced = torch.jit.trace(net, torch.ones(5, 3), check_trace=False)
    return [*values, str(kept).encode(), str(exported.graph).encode(), traced.code.encode()]


@pytest.mark.filterwarnings("ignore")
def test_copies_are_those_of_a_model_that_was_never_watched(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), save_all=True)

    def watch(net: nn.Module, loss: nn.Module) -> None:
        hook.register_module(net)
        hook.register_loss(loss)

    plain = copies(lambda *_: None)
    assert copies(lambda *_: None) == plain
    assert copies(watch) == plain
    hook.close()
    assert "1_output_0" in trial.names(0)


def test_a_model_for_another_process_shares_its_parameters(trial: WrittenTrial) -> None:
    hook, net, loss = watched(trial)
    shared = pickle.loads(ForkingPickler.dumps(net))
    assert torch.equal(shared[0].weight, net[0].weight)
    train(shared, loss)
    assert torch.equal(shared[0].weight, net[0].weight)
    hook.close()
    assert list(trial.indexes()) == [0]


def test_an_averaged_model(trial: WrittenTrial) -> None:
    hook, net, loss = watched(trial)
    average = torch.optim.swa_utils.AveragedModel(net)
    average.update_parameters(net)
    average(torch.ones(5, 3))
    assert hook.report().steps_seen == 1
    train(net, loss)
    hook.close()
    assert list(trial.indexes()) == [0, 1]


def test_a_stored_model_is_loaded_where_this_package_is_not(
    trial: WrittenTrial, tmp_path: Path
) -> None:
    hook, net, _ = watched(trial)
    torch.save(net, tmp_path / "net.pt")
    script = (
        "import sys; sys.modules['hook_layer'] = None; import torch; "
        "from torch.nn import Linear, ReLU, Sequential; "
        "torch.serialization.add_safe_globals([Linear, ReLU, Sequential, set]); "
        "net = torch.load('net.pt', weights_only=True); torch.jit.script(net); "
        "print(net(torch.ones(5, 3)).shape)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    hook.close()
    assert done.stdout.strip() == "torch.Size([5, 2])", done.stderr


def test_a_model_outlives_its_hook(trial: WrittenTrial) -> None:
    net, loss = watched(trial)[1:]
    hook = smd.get_hook()
    assert hook is not None
    hook.close()
    smd.del_hook()
    del hook
    train(net, loss)
    assert list(trial.indexes()) == [0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch trains in no fork beside CUDA")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_captures_nothing(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook, net, loss = watched(trial)
    train(net, loss)
    hook.set_mode(smd.modes.TRAIN)
    hook.recorder.lock.acquire()  # as another thread of the parent may have done at that moment
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train(net, loss)
            hook.save_scalar("lr", 1.0)
            hook.set_mode(smd.modes.EVAL)
            train(net, loss)
            hook.close()
            assert not hook.is_active
            assert hook.report().steps_seen == 2
            assert hook.recorder.record is None
            assert caplog.text.count("a fork, calls a registered model and saves nothing") == 1
            status = 0
        finally:
            os._exit(status)
    hook.recorder.lock.release()
    assert os.waitpid(child, 0)[1] == 0
    train(net, loss)
    hook.close()
    assert list(trial.indexes()) == [0, 1, 2]
    assert "scalar/lr" not in trial.names(2)
    assert not caplog.text


@pytest.mark.parametrize("has_gradients", [False, True])
def test_a_model_is_converted_by_swapping_its_tensors(
    trial: WrittenTrial, has_gradients: bool
) -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), save_all=True)
        net, loss = nn.Linear(3, 2), nn.MSELoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        hook.register_module(net)
        hook.register_optimizer(optimizer)
        for dtype in (torch.float32, torch.float64, torch.float32):
            net.to(dtype)  # raises if anything else refers to a parameter or gradient
            optimizer.zero_grad(set_to_none=not has_gradients)
            loss(net(torch.ones(5, 3, dtype=dtype)), torch.zeros(5, 2, dtype=dtype)).backward()
            if has_gradients:
                net.double()
            optimizer.step()
        hook.close()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert list(trial.indexes()) == [0, 1, 2]
    for step in range(3):
        assert "gradient/Linear_weight" in trial.names(step)
