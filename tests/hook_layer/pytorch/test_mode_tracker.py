"""Which forward passes belong to steps, in which mode, and whether they train."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch import nn  # noqa: E402

from hook_layer.core.clock import StepClock  # noqa: E402
from hook_layer.format.modes import ModeKeys  # noqa: E402
from hook_layer.pytorch.steps import FollowedSteps, ModeTracker  # noqa: E402


class Passes:
    """Forward passes of a model, in any mode."""

    def __init__(self, *, has_optimizer: bool) -> None:
        self.clock = StepClock()
        self.modes = ModeTracker(self.clock)
        self.net = nn.Linear(2, 1)
        if has_optimizer:
            self.modes.steps.add(torch.optim.SGD(self.net.parameters()))

    def run(self, mode: ModeKeys = ModeKeys.TRAIN) -> None:
        self.clock.set_mode(mode)
        self.modes.steps.next_pass(mode, self.net, (torch.ones(1, 2),))


@pytest.mark.parametrize(
    ("mode", "is_evaluating"),
    [
        (ModeKeys.TRAIN, False),
        (ModeKeys.GLOBAL, False),
        (ModeKeys.EVAL, True),
        (ModeKeys.PREDICT, True),
    ],
)
@pytest.mark.parametrize("has_optimizer", [False, True])
def test_a_pass_trains_unless_the_mode_is_one_of_evaluation(
    mode: ModeKeys, is_evaluating: bool, has_optimizer: bool
) -> None:
    passes = Passes(has_optimizer=has_optimizer)
    passes.run(mode)
    assert passes.modes.is_evaluating == is_evaluating
    assert passes.modes.is_training != is_evaluating
    assert not passes.modes.is_outside_steps
    assert not passes.modes.ignores_losses


def test_passes_that_cannot_train_and_their_losses_are_outside_of_an_optimizers_steps() -> None:
    passes = Passes(has_optimizer=True)
    passes.net.eval()
    passes.run()
    assert passes.modes.is_outside_steps
    assert passes.modes.ignores_losses
    passes.net.train()
    passes.run()
    assert not passes.modes.is_outside_steps
    assert not passes.modes.ignores_losses


def test_a_loss_without_gradients_belongs_to_no_step_of_an_optimizer() -> None:
    for has_optimizer in (True, False):
        passes = Passes(has_optimizer=has_optimizer)
        passes.run()
        with torch.no_grad():
            assert passes.modes.ignores_losses == has_optimizer


def test_without_an_optimizer_a_pass_that_cannot_train_is_a_step() -> None:
    passes = Passes(has_optimizer=False)
    with torch.no_grad():
        passes.run()
        assert not passes.modes.is_training
        assert not passes.modes.is_outside_steps
        assert not passes.modes.ignores_losses


def test_the_steps_may_be_decided_otherwise_from_now_on() -> None:
    passes = Passes(has_optimizer=False)
    passes.modes.steps = FollowedSteps()
    with torch.no_grad():
        passes.run()
        assert passes.modes.is_outside_steps
        assert passes.modes.ignores_losses
