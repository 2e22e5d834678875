"""How long what functional losses compare is kept."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.functional_steps import (
    NUMBERS,
    X,
    make_hook,
    make_net,
)


def shared_targets() -> tuple[torch.Tensor, weakref.ref[Any]]:
    """Return targets in memory of their own, and a reference to that memory."""
    storage = NUMBERS.clone().untyped_storage()
    return torch.empty(0).set_(storage, 0, (4, 3)), weakref.ref(storage)


def test_no_tensor_is_kept_after_the_step(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    targets = NUMBERS.clone()
    outputs = net(X)
    alive = [weakref.ref(outputs), weakref.ref(targets)]
    F.mse_loss(outputs, targets).backward()
    del outputs, targets
    gc.collect()
    assert [known() for known in alive] == [None, None]
    hook.close()


def test_what_is_no_loss_is_kept_until_the_optimiser_steps(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    targets, alive = shared_targets()
    outputs = net(X)
    (F.mse_loss(outputs, targets) + F.l1_loss(outputs, targets)).backward()
    optimizer.step()
    del outputs, targets
    gc.collect()
    assert alive() is None
    hook.close()


@pytest.mark.parametrize("end", ["backward", "optimiser", "close"])
def test_the_memory_of_what_was_compared_is_given_back(trial: WrittenTrial, end: str) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    targets, alive = shared_targets()
    loss = F.mse_loss(net(X), targets)
    if end == "backward":
        loss.backward()
    elif end == "optimiser":
        optimizer.step()
    else:
        hook.close()
    del targets, loss
    gc.collect()
    assert alive() is None
    hook.close()


def test_a_loss_without_backward_pass_is_kept_until_the_next_step(trial: WrittenTrial) -> None:
    hook = make_hook(trial, save_interval=100)
    net = make_net(hook)
    targets, alive = shared_targets()
    F.mse_loss(net(X), targets)
    del targets
    for _ in range(2):
        net(X)
    gc.collect()
    assert alive() is None
    hook.close()


def test_nothing_is_kept_that_nobody_asks_for(trial: WrittenTrial) -> None:
    hook = make_hook(trial, "^nothing$")
    net = make_net(hook)
    targets, alive = shared_targets()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.sum(), lambda x: x):
        loss = F.l1_loss(net(X), targets)
    del targets
    gc.collect()
    assert alive() is None
    assert loss.requires_grad
    hook.close()
