"""A loss that the script computes in its own way is saved with what it compares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.functional_steps import X, names_of

Y = torch.tensor([[1.0], [0.0], [2.0], [1.0]])
EVERY_SECOND = smd.SaveConfig(save_interval=2)


class Training:
    """A model whose script computes its losses itself.

    Args:
        trial: Where they are saved, in every second step.
    """

    def __init__(self, trial: WrittenTrial) -> None:
        self.hook = smd.Hook(
            trial.uri, save_config=EVERY_SECOND, include_collections=["losses", "loss_inputs"]
        )
        torch.manual_seed(0)
        self.net = nn.Linear(3, 1)
        self.hook.register_module(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.saved: list[tuple[Tensor, Tensor]] = []

    def step(self, *names: str) -> None:
        """Train by the sum of one loss for each name, which are 1, 2, ... times an error."""
        self.optimizer.zero_grad()
        outputs = self.net(X)
        losses = [(n * (outputs - Y)).square().mean() for n in range(1, len(names) + 1)]
        for name, loss in zip(names, losses, strict=True):
            self.hook.record_loss(outputs, Y, loss, name)
        sum(losses, torch.zeros(())).backward()
        self.optimizer.step()
        self.saved.append((outputs.detach().clone(), losses[0].detach().clone()))


@pytest.fixture
def training(trial: WrittenTrial) -> Iterator[Training]:
    training = Training(trial)
    yield training
    training.hook.close()
    assert not training.hook.report().errors


def test_loss_outputs_and_targets_are_saved_in_saved_steps(
    training: Training, trial: WrittenTrial
) -> None:
    for _ in range(3):
        training.step("Loss")
    training.hook.close()
    assert list(trial.indexes()) == [0, 2]
    for step in (0, 2):
        outputs, loss = training.saved[step]
        values = trial.values(step)
        assert values.keys() == names_of("Loss")
        assert values["Loss_input_0"].tolist() == outputs.tolist()
        assert values["Loss_input_1"].tolist() == Y.tolist()
        assert values["Loss_output_0"] == loss


def test_they_are_in_the_collections_of_losses_and_of_loss_inputs(
    training: Training, trial: WrittenTrial
) -> None:
    training.step("Loss")
    training.hook.close()
    collections = trial.collections().collections
    assert set(collections["losses"].tensor_names) == {"Loss_output_0"}
    assert set(collections["loss_inputs"].tensor_names) == {"Loss_input_0", "Loss_input_1"}


def test_losses_have_the_names_that_the_script_gives(
    training: Training, trial: WrittenTrial
) -> None:
    training.step("fit", "penalty")
    training.hook.close()
    values = trial.values(0)
    assert values.keys() == names_of("fit") | names_of("penalty")
    assert values["penalty_output_0"] == pytest.approx(4 * values["fit_output_0"])
    collections = trial.collections().collections
    assert set(collections["losses"].tensor_names) == {"fit_output_0", "penalty_output_0"}


def test_losses_of_one_name_are_numbered(training: Training, trial: WrittenTrial) -> None:
    training.step("Loss", "Loss")
    training.hook.close()
    assert trial.values(0).keys() == names_of("Loss") | names_of("Loss", 1)


def test_losses_that_the_hook_finds_by_itself_are_saved_no_more(
    training: Training, trial: WrittenTrial
) -> None:
    training.step("fit")
    for _ in range(2):
        nn.functional.mse_loss(training.net(X), Y).backward()
    training.hook.close()
    assert trial.values(0).keys() == names_of("fit")
    assert list(trial.indexes()) == [0]
