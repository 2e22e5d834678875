"""Steps of optimisers that nobody registered: which passes are one, whatever a script does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

X = torch.ones(2, 3)


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x).tanh())
        return result


class Watched:
    """A net whose hook follows optimisers; `numbers` of losses that its steps have."""

    def __init__(self, trial: WrittenTrial) -> None:
        self.trial, self.net = trial, Net()
        self.hook = smd.Hook(
            trial.uri,
            save_config=smd.SaveConfig(save_interval=1),
            include_collections=["weights", "gradients", "losses"],
        )
        self.hook.register_module(self.net)
        self.hook.follow_optimizers()

    def backward(self, times: int = 1) -> None:
        for _ in range(times):
            self.net(X).square().mean().backward()

    def numbers(self) -> list[int]:
        self.hook.close()
        assert not self.hook.report().errors
        names = [self.trial.names(step) for step in self.trial.indexes()]
        return [sum("Loss_output" in name for name in of_step) for of_step in names]


@pytest.fixture
def watched(trial: WrittenTrial) -> Watched:
    return Watched(trial)


def sgd(layer: nn.Module, kind: Any = torch.optim.SGD) -> Any:
    return kind(layer.parameters(), lr=0.01)


def test_several_passes_of_one_step(watched: Watched) -> None:
    optimizer = sgd(watched.net)
    for _ in range(3):
        watched.backward(times=2)
        optimizer.step()
        with torch.no_grad():
            watched.net(X)  # a look at a model that stays in training mode
    assert watched.numbers() == [2, 2, 2]


def test_optimizers_that_step_together(watched: Watched) -> None:
    both = sgd(watched.net.first), sgd(watched.net.second)
    for _ in range(4):
        watched.backward()
        for optimizer in both:
            optimizer.step()
    assert watched.numbers() == [1, 1, 1, 1]


def test_optimizers_that_take_turns_within_a_step(watched: Watched) -> None:
    both = sgd(watched.net.first), sgd(watched.net.second)
    for _ in range(4):
        for optimizer in both:
            watched.backward()
            optimizer.step()
    numbers = watched.numbers()
    assert sum(numbers) == 8
    assert max(numbers) == 2


@pytest.mark.parametrize("are_kept", [False, True])
def test_one_optimizer_after_the_other(watched: Watched, *, are_kept: bool) -> None:
    """As layer by layer: the second was not even made when the first one began."""
    kept = []
    for layer in (watched.net.first, watched.net.second, watched.net.first):
        optimizer = sgd(layer)
        if are_kept:
            kept.append(optimizer)
        for _ in range(5):
            watched.backward()
            optimizer.step()
    numbers = watched.numbers()
    assert sum(numbers) == 15
    # At each change one step is waited for in vain, of an optimiser that is still there.
    assert max(numbers) == 1 + are_kept


def test_passes_for_an_adversary_are_left_out(watched: Watched) -> None:
    """Ours is a discriminator, through which a generator is trained every other time."""
    generator = nn.Linear(3, 3)
    others, own = sgd(generator), sgd(watched.net)
    for step in range(4):
        if step % 2:
            watched.net(generator(X)).mean().backward()
            others.step()
            watched.net.zero_grad()
        watched.backward(times=2)
        own.step()
    assert watched.numbers() == [2, 2, 2, 2]
    values = watched.trial.values(1)
    assert float(values["Loss_output_0"]) == float(values["Loss_output_1"])


def test_the_optimizer_of_another_part_may_step_first(watched: Watched) -> None:
    head = nn.Linear(2, 1)
    both = sgd(head), sgd(watched.net)
    for _ in range(3):
        head(watched.net(X)).square().mean().backward()
        for optimizer in both:
            optimizer.step()
    assert watched.numbers() == [1, 1, 1]
    assert "gradient/Net_first.weight" in watched.trial.names(2)


def test_an_optimizer_that_never_steps_is_not_waited_for(watched: Watched) -> None:
    optimizer, _ = sgd(watched.net), sgd(watched.net)
    for _ in range(3):
        watched.backward()
        optimizer.step()
    assert watched.numbers() == [1, 1, 1]


def test_where_no_optimizer_steps_each_pass_is_a_step(watched: Watched) -> None:
    watched.backward(times=40)
    assert watched.numbers() == [32, *[1] * 8]


def test_longer_steps_than_before_are_waited_for_from_then_on(watched: Watched) -> None:
    optimizer = sgd(watched.net)
    for _ in range(3):
        watched.backward(times=50)
        optimizer.step()
    assert watched.numbers() == [32, *[1] * 18, 50, 50]


def test_a_closure(watched: Watched) -> None:
    optimizer = torch.optim.LBFGS(watched.net.parameters(), max_iter=3, tolerance_change=0.0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = watched.net(X).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    numbers = watched.numbers()
    assert len(numbers) == 3
    assert min(numbers) > 1


class Unhashable(torch.optim.SGD):
    """Is equal to another with the same rate."""

    optimizer = "sgd"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    __hash__ = None  # type: ignore[assignment]


def test_an_optimizer_without_a_hash(watched: Watched) -> None:
    optimizer = sgd(watched.net, Unhashable)
    for _ in range(3):
        watched.backward()
        optimizer.step()
    assert watched.numbers() == [1, 1, 1]


def test_validation_between(watched: Watched) -> None:
    optimizer = sgd(watched.net)
    for _ in range(2):
        watched.hook.set_mode(smd.modes.TRAIN)
        watched.backward(times=2)
        optimizer.step()
        watched.hook.set_mode(smd.modes.EVAL)
        with torch.no_grad():
            watched.net(X)
            watched.net(X)
    watched.hook.close()
    modes = [index.mode.name for _, index in sorted(watched.trial.indexes().items())]
    assert modes == ["TRAIN", "EVAL", "EVAL"] * 2
