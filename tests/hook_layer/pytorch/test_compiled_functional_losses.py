"""Loss functions that are compiled, scripted, traced or transformed."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.functional_steps import (
    CLASSES,
    NUMBERS,
    UNNAMED,
    X,
    make_hook,
    make_net,
    names_of,
    saved,
)


def test_a_compiled_model_with_its_loss_outside(trial: WrittenTrial) -> None:
    torch.compiler.reset()
    hook = make_hook(trial)
    net = make_net(hook)
    compiled = torch.compile(net, backend="aot_eager")
    for _ in range(2):
        F.mse_loss(compiled(X), NUMBERS).backward()
    hook.close()
    torch.compiler.reset()
    assert [trial.names(step) for step in (0, 1)] == [names_of("MSELoss")] * 2


def test_a_compiled_loss_has_no_name(trial: WrittenTrial) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda o: F.cross_entropy(o, CLASSES), backend="aot_eager", fullgraph=True
    )
    assert set(saved(trial, compiled)) == {UNNAMED}
    torch.compiler.reset()


def test_a_scripted_loss_has_no_name(trial: WrittenTrial) -> None:
    class Scripted(nn.Module):
        def forward(self, outputs: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(outputs, classes)

    hook = make_hook(trial)
    net = make_net(hook)
    scripted = torch.jit.script(Scripted())
    scripted(net(X), CLASSES).backward()
    hook.close()
    assert trial.names(0) == {UNNAMED}


def test_a_traced_loss_has_no_name(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    traced = torch.jit.trace(lambda o: F.mse_loss(o, NUMBERS), (X,))
    traced(net(X)).backward()
    hook.close()
    assert trial.names(0) == {UNNAMED}


def test_a_loss_within_a_transform_belongs_to_it(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    net(X)
    per_row = torch.func.vmap(torch.func.grad(lambda x, y: F.mse_loss(x, y) / 2))
    assert per_row(X, NUMBERS).shape == (4, 3)
    F.mse_loss(net(X), NUMBERS).backward()
    hook.close()
    assert trial.names(1) == names_of("MSELoss")
    assert not hook.report().errors
