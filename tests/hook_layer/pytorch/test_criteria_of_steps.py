"""Losses of a script's own in steps of several passes, of few steps, and what is none."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

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

UNNAMED = {"Loss_output_0"}
PAIR = {"Surprise_output_0", "Surprise_output_1"}


class Overlap(nn.Module):
    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.exp(-((outputs - targets) ** 2)).mean()


class Passed(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value


class Reduced(nn.Module):
    def forward(self, errors: torch.Tensor) -> torch.Tensor:
        return errors.log1p().mean()


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reduced = Reduced()

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.reduced((outputs - targets) ** 2)


@pytest.mark.parametrize(
    "minimised",
    [
        lambda _, overlap: 1 - overlap,
        lambda _, overlap: -overlap,
        lambda surprise, overlap: surprise - 0.1 * overlap,
    ],
)
def test_what_is_maximised_is_saved_as_it_is_minimised(
    trial: WrittenTrial, minimised: Callable[..., torch.Tensor]
) -> None:
    loop, surprise, overlap = Loop(trial), Surprise(), Overlap()
    losses = [loop.step(lambda out: minimised(surprise(out, Y), overlap(out, Y))) for _ in range(3)]
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [UNNAMED] * 3
    assert [float(trial.values(step)["Loss_output_0"]) for step in range(3)] == losses


def test_a_layer_of_torch_is_no_loss_though_it_returns_one_number(trial: WrittenTrial) -> None:
    loop, last = Loop(trial), nn.Sigmoid()
    for _ in range(3):
        (2 * last(loop.net(X[:1]))).squeeze().backward()
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [UNNAMED] * 3


def test_of_accumulated_passes_all_are_saved_and_validation_too(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    optimizer = torch.optim.SGD(loop.net.parameters(), 0.1)
    loop.hook.register_optimizer(optimizer)
    losses = []
    for _ in range(3):
        losses.append([loop.step(lambda out: criterion(out, Y)) for _ in range(2)])
        optimizer.step()
    loop.hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        criterion(loop.net(X), Y)
    loop.hook.close()
    assert [trial.names(step) for step in range(4)] == [PAIR, PAIR, PAIR, OWN]
    saved = [[float(trial.values(step)[name]) for name in sorted(PAIR)] for step in range(3)]
    assert saved == losses


def test_losses_are_found_in_the_steps_that_are_saved(trial: WrittenTrial) -> None:
    loop = Loop(trial, save_config=smd.SaveConfig(start_step=4, save_interval=3))
    criterion = Surprise()
    for step in range(10):
        loop.step(lambda out: criterion(out, Y))
        assert bool(module_hooks()) == (step in (6, 9))
    loop.hook.close()
    assert [trial.names(step) for step in (6, 9)] == [OWN] * 2


def test_a_module_made_for_one_call_is_no_loss(trial: WrittenTrial) -> None:
    loop = Loop(trial)
    for _ in range(3):
        loop.step(lambda out: Surprise()(out, Y))
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [UNNAMED] * 3
    assert not hook_errors(loop)


def test_a_module_made_anew_in_each_step_is_not_looked_for_again(trial: WrittenTrial) -> None:
    loop, kept = Loop(trial), []
    for _ in range(3):
        outputs = loop.net(X)
        criterion = Surprise()
        kept.append(weakref.ref(criterion))
        criterion(outputs, Y).backward()
        del criterion
    gc.collect()
    assert [one() for one in kept] == [None] * 3
    assert not module_hooks()
    loop.hook.close()
    assert [trial.names(step) for step in (1, 2)] == [UNNAMED] * 2


@pytest.mark.parametrize("last", [Passed(), nn.Identity(), lambda value: value])
def test_a_loss_is_the_outermost_module_that_computes_it(
    trial: WrittenTrial, last: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    loop, whole = Loop(trial), Whole()
    for _ in range(3):
        loop.step(lambda out: last(whole(out, Y)))
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [{"Whole_output_0"}] * 3


def test_what_was_compared_is_let_go_of_once_the_backward_pass_began(trial: WrittenTrial) -> None:
    loop, criterion = Loop(trial), Surprise()
    outputs = loop.net(X)
    kept = weakref.ref(outputs)
    loss = criterion(outputs, Y)
    del outputs
    loss.backward()
    del loss
    gc.collect()
    assert kept() is None
    loop.hook.close()
    assert trial.names(0) == OWN


def test_a_term_with_a_backward_pass_of_its_own_hides_no_loss(trial: WrittenTrial) -> None:
    class Penalty(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight.square().sum()

    loop, penalty = Loop(trial), Penalty()
    for _ in range(4):
        F.mse_loss(loop.net(X), Y).backward()
        (0.1 * penalty(loop.net.weight)).backward()
    loop.hook.close()
    assert [trial.names(step) for step in range(4)] == [{"MSELoss_output_0", "Loss_output_0"}] * 4
    assert not hook_errors(loop)


def test_two_criteria_with_a_backward_pass_each_are_both_saved(trial: WrittenTrial) -> None:
    class Off(nn.Module):
        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return (outputs - targets).abs().mean()

    loop, surprise, off = Loop(trial), Surprise(), Off()
    for _ in range(3):
        outputs = loop.net(X)
        losses = surprise(outputs, Y), off(outputs, Y)
        losses[0].backward(retain_graph=True)
        losses[1].backward()
    loop.hook.close()
    assert [trial.names(step) for step in range(3)] == [OWN | {"Off_output_0"}] * 3
