"""Several threads of one process that train, each a model of its own, or compute parts of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from weakref import WeakValueDictionary

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

import hook_layer.pytorch as smd
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.pytorch.unchanged import _Search
from hook_layer.testing.written_trial import WrittenTrial

X, Y = torch.ones(2, 4), torch.ones(2, 1)


def in_a_thread(function: Callable[..., Any], *arguments: object) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function, *arguments).result(timeout=60)


class SlowSource(HookSource):
    """A source that takes its time to make a hook."""

    uri = ""
    num_made = 0

    def is_needed(self, _: object = None) -> bool:
        return True

    def make(self, hook_type: Any, _: object = None) -> Any:
        type(self).num_made += 1
        begun.set()
        may_end.wait(10)
        return hook_type(self.uri, save_config=smd.SaveConfig(save_interval=1))


begun, may_end = threading.Event(), threading.Event()


def test_of_models_that_begin_in_several_threads_at_once_one_gets_the_hook(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SlowSource, "uri", trial.uri)
    monkeypatch.setattr(SlowSource, "num_made", 0)
    for event in (begun, may_end):
        event.clear()
    search = _Search(SlowSource(), WeakValueDictionary(), lambda _: None, ())
    search._handle = register_module_forward_pre_hook(search._on_forward)
    first, second = nn.Linear(4, 1), nn.Bilinear(4, 4, 1)
    training = threading.Thread(target=lambda: first(X).sum().backward())
    try:
        training.start()
        assert begun.wait(30)
        calling = threading.Thread(target=lambda: second(X, X).sum().backward())
        calling.start()
        calling.join(2)
        has_waited = calling.is_alive()
        may_end.set()
        for thread in (training, calling):
            thread.join(30)
    finally:
        may_end.set()
        search.end()
    assert SlowSource.num_made == 1
    assert not has_waited
    hook = cast(Any, search.hook)
    hook.close()
    assert trial.names(0) == {"Loss_output_0"}
    assert "failed" not in caplog.text


@pytest.fixture
def hook(trial: WrittenTrial) -> smd.Hook:
    return smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1))


def losses_of(trial: WrittenTrial, step: int) -> set[str]:
    return {name for name in trial.names(step) if "Loss" in name}


def test_losses_of_other_threads_are_of_what_they_train(
    trial: WrittenTrial, hook: smd.Hook
) -> None:
    model, criterion, other = nn.Linear(4, 1), nn.MSELoss(), nn.MSELoss()
    hook.register_module(model)
    for loss in (criterion, other):
        hook.register_loss(loss)

    def train_another() -> None:
        for shared in (criterion, other):
            shared(nn.Linear(4, 1)(X), Y).backward()

    for _ in range(2):
        outputs = model(X)
        in_a_thread(train_another)
        criterion(outputs, Y).backward()
    hook.close()
    assert losses_of(trial, 0) == losses_of(trial, 1) == {"MSELoss_output_0"}


def test_a_model_may_be_trained_in_a_thread_and_validated_in_another(
    trial: WrittenTrial, hook: smd.Hook
) -> None:
    model, criterion = nn.Linear(4, 1), nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(criterion)
    in_a_thread(lambda: criterion(model(X), Y).backward())
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        criterion(model(X), Y)
    hook.close()
    assert losses_of(trial, 0) == losses_of(trial, 1) == {"MSELoss_output_0"}


class Training:
    """A hook, and the model that it watches."""

    def __init__(self, trial: WrittenTrial) -> None:
        self.trial = trial
        self.hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1))
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.hook.register_module(self.model)

    def train(self, outputs: Any = None) -> None:
        loss: Any = F.mse_loss(self.model(X) if outputs is None else outputs, Y)
        loss.backward()
        self.optimizer.step()

    def losses(self) -> list[set[str]]:
        self.hook.close()
        assert not self.hook.report().errors
        return [losses_of(self.trial, step) for step in self.trial.indexes()]


def test_losses_of_functions_are_of_the_model_that_their_thread_called(
    new_trial: Callable[[], WrittenTrial],
) -> None:
    training, another = Training(new_trial()), Training(new_trial())
    for _ in range(3):
        outputs = training.model(X)
        in_a_thread(another.train)
        training.train(outputs)
    assert training.losses() == another.losses() == [{"MSELoss_output_0"}] * 3


def test_hooks_may_come_and_go_while_an_optimizer_steps(
    new_trial: Callable[[], WrittenTrial],
) -> None:
    training, others = Training(new_trial()), [Training(new_trial())]

    def go_on_with_another(*_: object) -> None:
        others.append(Training(new_trial()))
        others.pop(0).hook.close()

    handles = [register_optimizer_step_pre_hook(go_on_with_another) for _ in range(2)]
    try:
        for _ in range(3):
            training.train()
    finally:
        for handle in handles:
            handle.remove()
        others[0].hook.close()
    assert training.losses() == [{"MSELoss_output_0"}] * 3


class Replicated(nn.Module):
    """Runs replicas of a module in threads, each with a part of the batch, as DataParallel does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        replicas = [cast(Any, self.module)._replicate_for_data_parallel() for _ in range(2)]
        for replica in replicas:
            for name, parameter in self.module.named_parameters():
                setattr(replica, name, parameter.clone())
        with ThreadPoolExecutor(2) as pool:
            return torch.cat(list(pool.map(lambda part, row: part(row), replicas, inputs)))


def test_the_loss_of_a_model_whose_replicas_run_in_threads_is_saved(
    trial: WrittenTrial, hook: smd.Hook
) -> None:
    model, criterion = Replicated(nn.Linear(4, 1)), nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(criterion)
    for _ in range(2):
        criterion(model(X), torch.ones(2)).backward()
    hook.close()
    assert losses_of(trial, 0) == losses_of(trial, 1) == {"MSELoss_output_0"}
