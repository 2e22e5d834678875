"""A loss that is computed now is one of this hook's models, or of something else."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch import nn  # noqa: E402

from hook_layer.format.modes import ModeKeys  # noqa: E402
from hook_layer.pytorch.modules import RegisteredModules  # noqa: E402
from hook_layer.pytorch.steps import (  # noqa: E402
    MANY_OTHERS,
    LossOwnership,
    ModeTracker,
)
from tests.hook_layer.pytorch.open_step import OpenStep  # noqa: E402

T = TypeVar("T")
LOSS = torch.ones(1, requires_grad=True)


class Watched:
    """A registered model in an open step, and which losses it owns."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(2, 2))
        registered = RegisteredModules()
        registered.add_model(self.net)
        self.step = OpenStep()
        self.modes = ModeTracker(self.step.clock)
        self.ownership = LossOwnership(registered, self.modes, self.step.recorder)


def in_thread(action: Callable[[], T]) -> T:
    """Return what an action returns in another thread."""
    answers: list[T] = []
    thread = threading.Thread(target=lambda: answers.append(action()))
    thread.start()
    thread.join()
    return answers[0]


def test_the_model_that_was_called_last_is_the_newest_of_all_hooks() -> None:
    one, two = Watched(), Watched()
    assert not one.ownership.is_newest
    one.ownership.begin_pass(one.net)
    assert one.ownership.is_newest
    two.ownership.begin_pass(two.net)
    assert (one.ownership.is_newest, two.ownership.is_newest) == (False, True)
    one.ownership.begin_pass(one.net[0])
    assert (one.ownership.is_newest, two.ownership.is_newest) == (True, False)


def test_a_model_that_is_gone_is_not_the_newest() -> None:
    watched = Watched()
    watched.ownership.begin_pass(watched.net)
    del watched.net
    gc.collect()
    assert not watched.ownership.is_newest


def test_losses_of_other_threads_are_not_the_models() -> None:
    watched = Watched()
    assert watched.ownership.is_in_thread
    assert in_thread(lambda: watched.ownership.is_in_thread), "no thread has called a model yet"
    watched.ownership.begin_pass(watched.net)
    assert watched.ownership.is_in_thread
    assert not in_thread(lambda: watched.ownership.is_in_thread)
    assert not in_thread(lambda: watched.ownership.is_newest)


def complete(watched: Watched) -> None:
    watched.step.recorder.step_is_captured()


def evaluate(watched: Watched) -> None:
    watched.step.clock.set_mode(ModeKeys.EVAL)


@pytest.mark.parametrize(
    ("prepare", "num_others"), [(complete, 3), (evaluate, 3), (lambda _: None, MANY_OTHERS)]
)
def test_ownership_ends_after_some_optimizer_steps_of_others(
    prepare: Callable[[Watched], None], num_others: int
) -> None:
    watched = Watched()
    prepare(watched)
    for number in range(num_others):
        watched.ownership.num_others = number
        assert not watched.ownership.is_over
    watched.ownership.num_others = num_others
    assert watched.ownership.is_over


def test_ownership_ends_once_the_training_of_another_model_begins() -> None:
    watched = Watched()
    watched.ownership.others_begin()
    assert not watched.ownership.is_over, "the loss of the open step may still come"
    complete(watched)
    assert watched.ownership.is_over
    watched.ownership.num_others = MANY_OTHERS
    watched.ownership.others_begin()
    assert watched.ownership.num_others == MANY_OTHERS


def test_a_loss_with_gradients_after_a_validation_pass_without_trains_another_model() -> None:
    watched = Watched()
    evaluate(watched)
    with torch.no_grad():
        watched.ownership.begin_pass(watched.net)
        assert not watched.ownership.trains_another(LOSS)
    assert watched.ownership.trains_another({"loss": LOSS})
    assert not watched.ownership.trains_another(LOSS.detach())
    watched.ownership.begin_pass(watched.net)
    assert not watched.ownership.trains_another(LOSS), "this pass computes gradients"


def test_no_loss_trains_another_model_in_training_or_where_steps_are_reported() -> None:
    watched = Watched()
    with torch.no_grad():
        watched.ownership.begin_pass(watched.net)
    assert not watched.ownership.trains_another(LOSS)
    evaluate(watched)
    watched.modes.steps.add(torch.optim.SGD(watched.net.parameters()))
    assert not watched.ownership.trains_another(LOSS)
