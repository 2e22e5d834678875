"""A step is handed over as soon as nothing of it is awaited any more, and no sooner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

LOSS = "MSELoss_output_0"


class Training:
    """A loop that looks, at several points of every step, whether the step is visible."""

    def __init__(self, trial: WrittenTrial, collections: list[str], **options: Any) -> None:
        self.trial = trial
        self.hook = smd.Hook(
            trial.uri,
            save_config=smd.SaveConfig(save_interval=1),
            include_collections=collections,
            **options,
        )
        self.net, self.criterion = nn.Linear(2, 1), nn.MSELoss()
        self.hook.register_module(self.net)
        self.hook.register_loss(self.criterion)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.step = -1

    def points(self) -> Iterator[str]:
        """Do a step, with a stop behind each of its parts."""
        self.step += 1
        self.optimizer.zero_grad()
        loss = self.criterion(self.net(torch.ones(1, 2)), torch.zeros(1, 1))
        yield "forward"
        loss.backward()
        yield "backward"
        self.optimizer.step()
        yield "update"

    def is_visible(self) -> bool:
        self.hook.flush()
        return self.step in self.trial.indexes()

    def visible_from(self) -> str | None:
        seen = [point for point in self.points() if self.is_visible()]
        return seen[0] if seen else None


@pytest.mark.parametrize(
    ("collections", "point"),
    [
        ([], "backward"),
        (["weights", "biases"], "backward"),
        (["gradients"], "update"),
        (["optimizer_variables"], "update"),
    ],
)
def test_from_the_second_step_on_the_end_of_a_step_is_known(
    trial: WrittenTrial, collections: list[str], point: str
) -> None:
    training = Training(trial, collections)
    assert [training.visible_from() for _ in range(4)] == [None, point, point, point]
    training.hook.close()
    assert list(trial.indexes()) == [0, 1, 2, 3]
    assert all(LOSS in trial.names(step) for step in range(4))


def test_losses_are_handed_over_before_the_backward_pass(trial: WrittenTrial) -> None:
    training = Training(trial, [])
    training.visible_from()
    seen: list[bool] = []
    training.net.weight.register_hook(lambda _: seen.append(training.is_visible()))
    training.visible_from()
    assert seen == [True]
    training.hook.close()


def test_values_that_a_script_saves_after_the_backward_pass_stay_in_their_step(
    trial: WrittenTrial,
) -> None:
    training = Training(trial, [])
    for step in range(3):
        for point in training.points():
            if point == "backward":
                training.hook.save_scalar("gradient norm", float(step))
    training.hook.close()
    for step in range(3):
        assert trial.values(step)["scalar/gradient norm"] == step


def test_a_second_loss_after_the_first_backward_pass_stays_in_its_step(
    trial: WrittenTrial,
) -> None:
    training = Training(trial, [])
    for _ in range(3):
        for point in training.points():
            if point == "backward":
                training.criterion(torch.ones(1, 1), torch.zeros(1, 1))
    training.hook.close()
    for step in range(3):
        assert {"MSELoss_output_0", "MSELoss_output_1"} <= trial.names(step)


def test_a_registered_optimiser_ends_the_step_whatever_is_saved(trial: WrittenTrial) -> None:
    training = Training(trial, [])
    training.hook.register_optimizer(training.optimizer)
    assert [training.visible_from() for _ in range(3)] == [None, "update", "update"]
    training.hook.close()
