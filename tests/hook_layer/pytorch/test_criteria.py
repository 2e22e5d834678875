"""Losses of a script's own, whose class is not called a loss: backward passes start from them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from hook_layer.testing.written_trial import WrittenTrial

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

import hook_layer.pytorch as smd  # noqa: E402

X, Y = torch.ones(4, 3), torch.tensor([[0.5], [1.0], [0.0], [2.0]])
OWN = {"Surprise_output_0"}


class Surprise(nn.Module):
    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((outputs - targets) ** 2).log1p().mean()


class Shift(nn.Module):
    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs + 1


class Learned(Surprise):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))


class Loop:
    def __init__(self, trial: WrittenTrial, **options: Any) -> None:
        torch.manual_seed(0)
        self.hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), **options)
        self.net = nn.Linear(3, 1)
        self.hook.register_module(self.net)

    def consider(self, *modules: nn.Module) -> None:
        for module in modules:
            self.hook.consider_loss(module)

    def step(self, loss: Callable[[torch.Tensor], torch.Tensor]) -> float:
        value = loss(self.net(X))
        value.backward()
        return float(value.detach())


def test_a_module_that_backward_starts_from_is_a_loss_from_the_first_step(
    trial: WrittenTrial,
) -> None:
    loop, criterion, shift = Loop(trial), Surprise(), Shift()
    loop.consider(criterion, shift)
    losses = [loop.step(lambda out: criterion(shift(out), Y)) for _ in range(2)]
    loop.hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        losses += [float(criterion(shift(loop.net(X)), Y))]
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [OWN] * 3
    assert [float(trial.values(step)["Surprise_output_0"]) for step in range(3)] == losses
    assert trial.collections().collections["losses"].tensor_names == tuple(OWN)
    assert not hook_errors(loop)
    assert not shift._forward_hooks


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda loss: loss / 4, OWN),
        (lambda loss: 3 * loss, OWN),
        (lambda loss: loss.div_(4), OWN),
        (lambda loss: loss + 0, OWN),
        (lambda loss: loss + loss.exp(), {"Loss_output_0"}),
        (lambda loss: loss.square(), {"Loss_output_0"}),
    ],
)
def test_only_a_constant_may_stand_between(
    trial: WrittenTrial, change: Callable[[torch.Tensor], torch.Tensor], names: set[str]
) -> None:
    loop, criterion = Loop(trial), Surprise()
    loop.consider(criterion)
    losses = []

    def loss(outputs: torch.Tensor) -> torch.Tensor:
        value = criterion(outputs, Y)
        losses.append(float(value))
        return change(value)

    loop.step(loss)
    loop.hook.close()
    assert trial.names(0) == names
    if names == OWN:
        assert float(trial.values(0)["Surprise_output_0"]) == losses[0]


def test_of_a_sum_both_are_losses(trial: WrittenTrial) -> None:
    loop, first, second = Loop(trial), Surprise(), Surprise()
    loop.consider(first, second)
    for _ in range(2):
        loop.step(lambda out: first(out, Y) + 0.5 * second(out, -Y))
    loop.hook.close()
    assert [len(trial.names(step)) for step in (0, 1)] == [2, 2]
    assert not hook_errors(loop)


def test_calls_of_one_module_have_the_numbers_of_later_steps(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    loop.consider(criterion)
    for _ in range(2):
        loop.step(lambda out: criterion(out, Y) + criterion(out, 100 + Y))
    loop.hook.close()
    for step in (0, 1):
        values = trial.values(step)
        assert values["Surprise_output_0"] < 5 < values["Surprise_output_1"]


def test_of_several_numbers_all_are_saved(trial: WrittenTrial) -> None:
    class Parts(Surprise):
        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
            near = super().forward(outputs, targets)
            return {"near": near, "far": super().forward(outputs, targets + 100)}

    loop, criterion = Loop(trial), Parts()
    loop.consider(criterion)
    for _ in range(2):
        loop.step(lambda out: sum(criterion(out, Y).values()))
    loop.hook.close()
    for step in (0, 1):
        values = trial.values(step)
        assert values["Parts_output_0"] < 5 < values["Parts_output_1"]


def test_what_returns_more_than_numbers_is_no_loss(trial: WrittenTrial) -> None:
    class Both(Surprise):
        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
            return super().forward(outputs, targets), outputs.exp()

    loop, criterion = Loop(trial), Both()
    loop.consider(criterion)
    loop.step(lambda out: criterion(out, Y)[0])
    loop.hook.close()
    assert trial.names(0) == {"Loss_output_0"}


def test_a_compiled_module_is_no_mistake(trial: WrittenTrial) -> None:
    loop = Loop(trial)
    criterion = torch.compile(Surprise(), backend="eager")
    loop.consider(criterion)
    loop.step(lambda out: criterion(out, Y))
    loop.hook.close()
    assert trial.names(0) == {"Loss_output_0"}
    assert not hook_errors(loop)


def test_functions_of_torch_come_first(trial: WrittenTrial) -> None:
    class Wrapped(nn.Module):
        def forward(self, outputs: torch.Tensor) -> torch.Tensor:
            return F.mse_loss(outputs, Y)

    loop, criterion = Loop(trial), Wrapped()
    loop.consider(criterion)
    for _ in range(4):
        loop.step(criterion)
    loop.hook.close()
    assert [trial.names(step) for step in range(4)] == [{"MSELoss_output_0"}] * 4


def test_a_module_with_parameters_is_no_loss(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Learned()
    loop.consider(criterion)
    loop.step(lambda out: criterion(out, Y))
    loop.hook.close()
    assert trial.names(0) == {"Loss_output_0"}


def test_what_no_backward_pass_starts_from_is_left_alone(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    loop.consider(criterion)
    for _ in range(3):
        loop.step(lambda out: criterion(out, Y) * 0 + out.square().mean() * out.mean())
    assert not criterion._forward_hooks
    loop.step(lambda out: criterion(out, Y))
    loop.hook.close()
    assert trial.names(3) == {"Loss_output_0"}


def test_what_a_loss_compares_is_a_loss_input_whatever_it_is_called(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial, include_collections=["loss_inputs"]), Surprise()
    loop.hook.get_collection("loss_inputs").include("[Ll]oss_input_[0-9]+$")
    loop.hook.register_loss(criterion)
    loop.step(lambda out: criterion(out, Y))
    loop.hook.close()
    compared = {"Surprise_input_0", "Surprise_input_1"}
    assert trial.names(0) == OWN | compared
    assert set(trial.collections().collections["loss_inputs"].tensor_names) == compared


def test_nothing_is_kept_once_a_step_is_over(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    loop.consider(criterion)
    kept = weakref.ref(criterion(loop.net(X), Y))
    loop.net(X)
    gc.collect()
    assert kept() is None
    loop.hook.close()
    assert not criterion._forward_hooks


def hook_errors(loop: Loop) -> object:
    return loop.hook.report().errors
