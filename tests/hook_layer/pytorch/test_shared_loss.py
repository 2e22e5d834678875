"""One criterion that several trainings of a process share; one of them is watched."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial


def test_what_others_do_with_the_loss_does_not_fill_the_last_step(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hook_layer.pytorch.module_calls.MAX_CALLS_A_STEP", 5)
    criterion = nn.MSELoss()
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1))
    hook.register_loss(criterion)
    for number in range(3):
        model = nn.Linear(4, 1)
        if number == 0:
            hook.register_module(model)
        for _ in range(8):
            criterion(model(torch.ones(2, 4)), torch.ones(2, 1)).backward()
            if number == 0:
                hook.save_scalar("rate", 1.0)  # for which steps stay open until the next one
    hook.close()
    names = trial.names(7)
    assert sum(name.startswith("MSELoss_output") for name in names) == 5
    assert caplog.text.count("one step has 5 tensors MSELoss_") == 1
    assert {name for name in trial.names(3) if "Loss" in name} == {"MSELoss_output_0"}


class Search:
    """Trains one model after the other by one criterion; the first one is watched.

    Args:
        trial: What is written.
    """

    def __init__(self, trial: WrittenTrial, **options: Any) -> None:
        self.trial, self.criterion = trial, nn.MSELoss()
        self.hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), **options)
        self.hook.follow_optimizers()
        self.hook.register_loss(self.criterion)
        self.models: list[nn.Module] = []

    def train(self, num_steps: int) -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if not self.models:
            self.hook.register_module(model)
        self.hook.loop.note_optimizer(optimizer)
        self.models.append(model)
        for _ in range(num_steps):
            self.loss(model).backward()
            optimizer.step()

    def loss(self, model: nn.Module, num_rows: int = 2) -> torch.Tensor:
        loss: torch.Tensor = self.criterion(model(torch.ones(num_rows, 4)), torch.ones(num_rows, 1))
        return loss

    def validate(self, *, has_graph: bool = False) -> None:
        self.hook.set_mode(smd.modes.EVAL)
        with torch.set_grad_enabled(has_graph):
            self.loss(self.models[0])

    def numbers(self) -> list[int]:
        self.hook.close()
        assert not self.hook.report().errors
        names = [self.trial.names(step) for step in self.trial.indexes()]
        return [sum("MSELoss_output" in name for name in of_step) for of_step in names]


@pytest.fixture
def search(trial: WrittenTrial) -> Search:
    return Search(trial)


@pytest.mark.parametrize("has_graph", [True, False])
@pytest.mark.parametrize("is_notified", [True, False])
def test_losses_of_later_models_are_not_those_of_the_last_validation(
    search: Search, monkeypatch: pytest.MonkeyPatch, *, is_notified: bool, has_graph: bool
) -> None:
    if not is_notified:
        monkeypatch.setattr(search.hook.loop, "note_optimizer", lambda _: None)
    search.train(4)
    search.validate(has_graph=has_graph)
    search.train(50)
    assert not search.hook.collector.due
    search.train(5)
    # Where the validation has gradients, too, it is not known yet whose the first of them are.
    assert search.numbers() == [1, 1, 1, 1, 4 if has_graph and not is_notified else 1]


LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "module": nn.MSELoss(),
    "function": lambda outputs: nn.functional.mse_loss(outputs, torch.ones(2, 1)),
    "no name": lambda outputs: outputs.square().mean(),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_what_trains_on_the_outputs_of_a_validated_model_is_another_one(
    trial: WrittenTrial, kind: str
) -> None:
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1))
    hook.follow_optimizers()
    model, head, criterion = nn.Linear(4, 3), nn.Linear(3, 1), LOSSES[kind]
    hook.register_module(model)
    compared = (torch.ones(2, 1),) if isinstance(criterion, nn.Module) else ()
    if isinstance(criterion, nn.Module):
        hook.register_loss(criterion)
    hook.set_mode(smd.modes.EVAL)
    for _ in range(2):
        with torch.no_grad():
            features = model(torch.ones(2, 4))
        criterion(head(features), *compared).backward()
    hook.close()
    assert not any("Loss" in name for step in trial.indexes() for name in trial.names(step))


def test_a_loss_that_follows_a_validation_without_gradients_is_of_it(search: Search) -> None:
    search.train(2)
    search.hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        outputs = search.models[0](torch.ones(2, 4))
    search.criterion(outputs, torch.ones(2, 1))
    assert search.numbers() == [1, 1, 1]


def test_nor_are_they_late_ones_of_the_last_step(
    search: Search, caplog: pytest.LogCaptureFixture
) -> None:
    search.train(4)
    search.train(50)
    assert search.numbers() == [1, 1, 1, 1]
    assert "came after their step" not in caplog.text
    assert not search.hook.report().late_tensors


def test_functions_of_later_models_are_left_out_as_well(
    trial: WrittenTrial,
) -> None:
    torch.manual_seed(0)
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1))
    hook.follow_optimizers()
    for number in range(2):
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if number == 0:
            hook.register_module(model)
        hook.loop.note_optimizer(optimizer)
        for _ in range(6):
            outputs = model(torch.ones(2, 4))
            (
                nn.functional.mse_loss(outputs, torch.ones(2, 1)) + 0.1 * outputs.square().mean()
            ).backward()
            optimizer.step()
        hook.set_mode(smd.modes.EVAL)
        if number == 0:
            with torch.no_grad():
                nn.functional.mse_loss(model(torch.ones(2, 4)), torch.ones(2, 1))
    hook.close()
    for step in trial.indexes():
        assert {name for name in trial.names(step) if "Loss" in name} == {"MSELoss_output_0"}


def test_a_model_that_is_called_again_gets_its_losses(search: Search) -> None:
    search.train(2)
    search.train(5)
    search.hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        for _ in range(2):
            search.loss(search.models[0])
    assert search.numbers() == [1, 1, 1, 1]


def test_the_loss_of_a_generator_may_come_behind_some_steps_of_its_adversary(
    trial: WrittenTrial,
) -> None:
    search = Search(trial)
    generator, adversary = nn.Linear(4, 4), nn.Linear(4, 1)
    search.hook.register_module(generator)
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (generator, adversary)]
    for _ in range(3):
        made = generator(torch.ones(2, 4))
        for _ in range(5):
            nn.functional.l1_loss(adversary(made.detach()), torch.zeros(2, 1)).backward()
            optimizers[1].step()
        search.criterion(adversary(made), torch.ones(2, 1)).backward()
        optimizers[0].step()
    assert search.numbers() == [1, 1, 1]


def test_losses_without_another_call_of_the_model_fill_no_step_beyond_the_queue(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    search = Search(trial, queue_bytes=1_000_000, include_regex="MSELoss_input")
    search.train(2)
    search.validate()
    with torch.no_grad():
        for _ in range(200):  # 50 kB each
            search.loss(nn.Linear(4, 1), 6_000)
    assert search.hook.recorder.record is None
    assert search.numbers()[-1] < 100
    assert "tensors fill queue_bytes=1000000" in caplog.text


def test_a_model_that_others_follow_is_released_or_continues(trial: WrittenTrial) -> None:
    search = Search(trial, include_collections=["weights", "gradients", "losses"])
    search.train(3)
    first = search.models[0]
    optimizer = torch.optim.SGD(first.parameters(), 0.1)
    search.train(50)
    for _ in range(2):
        search.loss(first).backward()
        optimizer.step()
    known = weakref.ref(first)
    del first, optimizer
    search.models.clear()
    search.models.append(nn.Linear(1, 1))
    search.train(50)
    gc.collect()
    assert known() is None
    assert search.numbers() == [1, 1, 1, 1, 1]
    assert trial.names(3) == trial.names(1) >= {"Linear_weight", "gradient/Linear_weight"}
