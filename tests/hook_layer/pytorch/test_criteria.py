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
from tests.hook_layer.pytorch.own_criteria import (  # noqa: E402
    OWN,
    Loop,
    Surprise,
    X,
    Y,
    hook_errors,
    module_hooks,
)


class Shift(nn.Module):
    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs + 1


class Learned(Surprise):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))


def test_a_module_that_backward_starts_from_is_a_loss_from_the_first_step(
    trial: WrittenTrial,
) -> None:
    loop, criterion, shift = Loop(trial), Surprise(), Shift()
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
    assert not module_hooks()


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
    for _ in range(2):
        loop.step(lambda out: first(out, Y) + 0.5 * second(out, -Y))
    loop.hook.close()
    assert [len(trial.names(step)) for step in (0, 1)] == [2, 2]
    assert not hook_errors(loop)


def test_calls_of_one_module_have_the_numbers_of_later_steps(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
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
    loop.step(lambda out: criterion(out, Y)[0])
    loop.hook.close()
    assert trial.names(0) == {"Loss_output_0"}


def test_a_compiled_module_is_no_mistake(trial: WrittenTrial) -> None:
    loop = Loop(trial)
    criterion = torch.compile(Surprise(), backend="eager")
    loop.step(lambda out: criterion(out, Y))
    loop.hook.close()
    assert trial.names(0) == {"Loss_output_0"}
    assert not hook_errors(loop)


def test_functions_of_torch_come_first(trial: WrittenTrial) -> None:
    class Wrapped(nn.Module):
        def forward(self, outputs: torch.Tensor) -> torch.Tensor:
            return F.mse_loss(outputs, Y)

    loop, criterion = Loop(trial), Wrapped()
    for _ in range(4):
        loop.step(criterion)
    loop.hook.close()
    assert [trial.names(step) for step in range(4)] == [{"MSELoss_output_0"}] * 4


def test_a_module_with_parameters_is_no_loss(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Learned()
    loop.step(lambda out: criterion(out, Y))
    loop.hook.close()
    assert trial.names(0) == {"Loss_output_0"}


def test_only_the_first_two_steps_are_looked_at(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    for _ in range(2):
        loop.step(lambda out: criterion(out, Y) * 0 + out.square().mean() * out.mean())
    assert module_hooks()
    loop.step(lambda out: criterion(out, Y))
    assert not module_hooks()
    loop.hook.close()
    assert trial.names(2) == {"Loss_output_0"}
    assert not criterion._forward_hooks


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
    kept = weakref.ref(criterion(loop.net(X), Y))
    loop.net(X)
    gc.collect()
    assert kept() is None
    loop.hook.close()
    assert not criterion._forward_hooks


def test_a_number_to_print_has_its_place_from_the_first_step_on(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    for _ in range(2):
        outputs = loop.net(X)
        criterion(outputs, Y + 100)
        criterion(outputs, Y).backward()
    loop.hook.close()
    for step in (0, 1):
        values = trial.values(step)
        assert values["Surprise_output_1"] < 5 < values["Surprise_output_0"]


def test_inputs_that_were_overwritten_since_are_left_out(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial, include_collections=["loss_inputs"]), Surprise()
    loop.hook.get_collection("loss_inputs").include("[Ll]oss_input_[0-9]+$")
    targets = Y.clone()
    loss = criterion(loop.net(X), targets)
    targets.fill_(-99)
    loss.backward()
    loop.hook.close()
    assert trial.names(0) == OWN


def test_of_many_calls_in_a_pass_all_are_saved(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    for _ in range(2):
        loop.step(lambda out: sum(criterion(out, Y + at) for at in range(20)) / 20)
    loop.hook.close()
    assert [len(trial.names(step)) for step in (0, 1)] == [20, 20]


def test_what_calls_the_model_itself_is_no_loss(trial: WrittenTrial) -> None:
    class Step(nn.Module):
        def __init__(self, *nets: nn.Module) -> None:
            super().__init__()
            self.nets = list(nets)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return (self.nets[0](inputs) - Y).exp().mean()

    loop = Loop(trial)
    training = Step(loop.net)
    for _ in range(3):
        training(X).backward()
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [{"Loss_output_0"}] * 3


def test_a_layer_of_another_model_is_no_loss(trial: WrittenTrial) -> None:
    loop, critic = Loop(trial), nn.Sequential(nn.Linear(1, 1), nn.Flatten(0))
    for _ in range(3):
        loop.step(lambda out: -critic(out[:1]).sum())
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [{"Loss_output_0"}] * 3


def test_nothing_holds_a_module_or_what_it_was_called_with(trial: WrittenTrial) -> None:
    loop, shifts = Loop(trial), [Shift() for _ in range(20)]
    kept = [weakref.ref(shift) for shift in shifts]
    for shift in shifts:
        shift(X)
    assert not any(shift._forward_hooks for shift in shifts)
    del shifts, shift
    gc.collect()
    assert not any(each() for each in kept)
    loop.hook.close()
    assert not module_hooks()


def test_a_module_that_returns_itself_harms_no_loss(trial: WrittenTrial) -> None:
    class Circle(nn.Module):
        def forward(self, outputs: torch.Tensor) -> list[Any]:
            found: list[Any] = [outputs]
            found.append(found)
            return found

    loop, circle, criterion = Loop(trial), Circle(), nn.MSELoss()
    loop.hook.register_loss(criterion)
    for _ in range(5):
        loop.step(lambda out: criterion(circle(out)[0], Y))
    loop.hook.close()
    assert all(trial.names(step) == {"MSELoss_output_0"} for step in range(5))


def test_a_watched_model_and_what_stands_beside_it_can_be_scripted(trial: WrittenTrial) -> None:
    loop, shift = Loop(trial), Shift()
    loop.step(lambda out: nn.functional.mse_loss(shift(out), Y))
    scripted = torch.jit.script(nn.Sequential(loop.net, shift))
    loop.step(lambda out: nn.functional.mse_loss(shift(out), Y))
    loop.hook.close()
    assert torch.equal(scripted(X), loop.net(X) + 1)
    assert [trial.names(step) for step in (0, 1)] == [{"MSELoss_output_0"}] * 2
