"""Losses that no module computes: they are found where the backward pass starts."""

from __future__ import annotations

import copy
import gc
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

LOSS, UNNAMED = "CrossEntropyLoss_output_0", "Loss_output_0"
X, LABELS = torch.ones(2, 3), torch.tensor([0, 1])


def make_hook(trial: WrittenTrial, **options: Any) -> smd.Hook:
    return smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), **options)


class Loop:
    """A model, its optimiser, and a loop whose step computes a functional loss."""

    def __init__(self, hook: smd.Hook) -> None:
        torch.manual_seed(0)
        self.net: nn.Module = nn.Linear(3, 2)
        hook.register_module(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def loss(self) -> torch.Tensor:
        return F.cross_entropy(self.net(X), LABELS)

    def step(self, backward: Callable[[torch.Tensor], None] = torch.Tensor.backward) -> float:
        self.optimizer.zero_grad()
        loss = self.loss()
        backward(loss)
        self.optimizer.step()
        return float(loss.detach())


@pytest.mark.parametrize(
    "backward",
    [
        torch.Tensor.backward,
        lambda loss: torch.autograd.backward(loss),  # noqa: PLW0108 - looked up when it is called
        lambda loss: torch.autograd.backward([loss]),
        lambda loss: torch.autograd.backward(tensors=(loss,)),
        lambda loss: loss.backward(torch.tensor(1.0), retain_graph=True),
    ],
)
def test_a_functional_loss_is_saved_as_a_loss(
    trial: WrittenTrial, backward: Callable[[torch.Tensor], None]
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook)
    losses = [loop.step(backward) for _ in range(3)]
    hook.close()
    assert [trial.names(step) for step in range(3)] == [{LOSS}] * 3
    assert [float(trial.values(step)[LOSS]) for step in range(3)] == losses
    assert losses[0] > losses[-1]
    assert trial.collections().collections["losses"].tensor_names == (LOSS,)
    assert not hook.report().errors
    assert hook.report().late_tensors == 0


@pytest.mark.parametrize(
    ("change", "name"),
    [(lambda x: x, LOSS), (lambda x: x / 4, LOSS), (lambda x: x.square(), UNNAMED)],
)
def test_the_loss_of_a_module_is_not_saved_twice(
    trial: WrittenTrial, change: Callable[[torch.Tensor], torch.Tensor], name: str
) -> None:
    hook = make_hook(trial)
    loop, criterion = Loop(hook), nn.CrossEntropyLoss()
    hook.register_loss(criterion)
    for step in range(3):
        outputs = loop.net(X)
        loss = criterion(outputs, LABELS) if step != 1 else F.cross_entropy(outputs, LABELS)
        change(loss).backward()
        loop.optimizer.step()
    hook.close()
    names = [trial.names(step) for step in range(3)]
    assert names == [{"CrossEntropyLoss_output_0"}, {name}, {"CrossEntropyLoss_output_0"}]


def test_a_loss_that_the_script_names_is_not_saved_twice(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook)
    for step in range(3):
        loss = loop.loss()
        hook.record_tensor_value("ce", loss)
        hook.save_tensor("other", loss, ["losses"])
        loss.backward()
        if step == 2:
            (2 * loop.loss()).backward()  # a step of its own, whose loss has no name
    hook.close()
    assert hook.report().steps_seen == 4
    names = {step: trial.names(step) for step in trial.indexes()}
    assert names == {step: {"ce_output_0", "other"} for step in range(3)}


def test_several_losses_are_numbered(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook)
    for _ in range(2):
        outputs = loop.net(X)
        first, second = outputs.sum(), outputs.square().sum()
        first.backward(retain_graph=True)
        torch.autograd.backward([second, 2 * first])
        loop.optimizer.step()
    hook.close()
    for step in (0, 1):
        values = trial.values(step)
        assert set(values) == {f"Loss_output_{i}" for i in range(3)}
        assert values["Loss_output_2"] == 2 * values[UNNAMED]


def test_what_is_no_loss_is_not_saved(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook)
    loop.net(X).backward(torch.ones(2, 2))
    torch.autograd.grad(loop.net(X).sum(), loop.net.weight)
    with pytest.raises(RuntimeError, match="implicitly"):
        loop.net(X).backward()
    with pytest.raises(TypeError):
        torch.autograd.backward()  # type: ignore[call-arg]
    loop.net(X)
    hook.close()
    assert not list(trial.indexes())
    assert not hook.report().errors


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing_starts_no_loss(trial: WrittenTrial, use_reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    hook = make_hook(trial)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    hook.register_module(net)
    for _ in range(2):
        x = torch.ones(1, 3, requires_grad=True)
        checkpoint(net, x, use_reentrant=use_reentrant).sum().backward()
    hook.close()
    assert hook.report().steps_seen == 2
    assert [trial.names(step) for step in range(2)] == [{UNNAMED}] * 2


@pytest.mark.parametrize("divisor", [1, 4])
@pytest.mark.parametrize("scale", [65536.0, 1000.0])
def test_a_scaled_loss_is_saved_as_its_function_returned_it(
    trial: WrittenTrial, scale: float, divisor: int
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
    expected = []
    for _ in range(5):
        loop.optimizer.zero_grad()
        loss = loop.loss()
        expected.append(float(loss.detach()))
        (scaler.scale(loss) / divisor).backward()
        scaler.step(loop.optimizer)
        scaler.update()
    hook.close()
    assert scaler.get_scale() > scale
    found = [float(trial.values(step)[LOSS]) for step in range(5)]
    assert found == pytest.approx(expected, rel=1e-6)


def test_two_scaled_losses_and_one_that_is_not(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = [loop.loss(), 2 * loop.net(X).sum()]
    for scaled in scaler.scale(losses):
        scaled.backward()
    losses.append(loop.net(X).square().sum())
    losses[-1].backward()
    hook.close()
    # The first forward pass was a step of its own, which saw no backward pass.
    assert list(trial.indexes()) == [1, 2]
    found = [value for step in (1, 2) for value in trial.values(step).values()]
    assert [float(value) for value in found] == [float(loss.detach()) for loss in losses]


@pytest.mark.parametrize(("backend", "name"), [("aot_eager", UNNAMED), ("eager", LOSS)])
def test_a_compiled_train_step(trial: WrittenTrial, backend: str, name: str) -> None:
    from torch._dynamo.utils import counters

    def breaks_and_losses(hook: smd.Hook | None) -> tuple[int, list[float]]:
        torch.compiler.reset()
        counters.clear()
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        if hook is not None:
            hook.register_module(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        @torch.compile(backend=backend)
        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), LABELS)
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses = [float(step(X)) for _ in range(3)]
        return sum(counters["graph_break"].values()), losses

    hook = make_hook(trial, include_collections=["gradients"])
    num_breaks, losses = breaks_and_losses(hook)
    hook.close()
    num_breaks_without, losses_without = breaks_and_losses(None)
    assert losses == losses_without
    assert 0 < num_breaks <= num_breaks_without  # at zero_grad, backward and step
    assert [float(trial.values(step)[name]) for step in range(3)] == losses
    assert "gradient/Linear_weight" in trial.names(2)
    assert not hook.report().errors


def test_a_compiled_train_step_with_a_scaler(trial: WrittenTrial) -> None:
    torch.compiler.reset()
    hook = make_hook(trial, include_collections=["gradients"])
    loop = Loop(hook)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    @torch.compile(backend="aot_eager")
    def step() -> tuple[torch.Tensor, torch.Tensor]:
        loop.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loop.loss()
        scaler.scale(loss).backward()
        scaler.step(loop.optimizer)
        scaler.update()
        return loss.detach(), loop.net.weight.grad.clone()

    expected = [step() for _ in range(3)]
    hook.close()
    torch.compiler.reset()
    for number, (loss, gradient) in enumerate(expected):
        values = trial.values(number)
        assert float(values[UNNAMED]) == float(loss)
        np.testing.assert_array_equal(values["gradient/Linear_weight"], gradient.numpy())
    assert not hook.report().errors


def test_a_loss_belongs_to_the_hook_whose_model_ran_last(
    new_trial: Callable[[], WrittenTrial],
) -> None:
    trials = [new_trial(), new_trial()]
    hooks = [make_hook(trial) for trial in trials]
    loops = [Loop(hook) for hook in hooks]
    for _ in range(2):
        losses = [loop.step() for loop in loops]
    for hook, trial, loss in zip(hooks, trials, losses, strict=True):
        hook.close()
        assert {step: set(trial.names(step)) for step in range(2)} == {0: {LOSS}, 1: {LOSS}}
        assert float(trial.values(1)[LOSS]) == loss


@pytest.mark.parametrize("is_part", [False, True])
def test_a_loss_belongs_to_the_newest_hook_of_its_model(
    new_trial: Callable[[], WrittenTrial], is_part: bool
) -> None:
    trials = [new_trial() for _ in range(3)]
    hooks = [make_hook(trial) for trial in trials]
    loop = Loop(hooks[0])
    wrapped = nn.Sequential(loop.net)
    hooks[1].register_module(wrapped if is_part else loop.net)
    Loop(hooks[2]).step()
    loop.net = wrapped
    losses = [loop.step() for _ in range(2)]
    for hook in hooks:
        hook.close()
    assert not trials[0].indexes()
    assert [float(trials[1].values(step)[LOSS]) for step in range(2)] == losses
    assert [trials[1].names(0), trials[2].names(0)] == [{LOSS}, {LOSS}]
    assert list(trials[2].indexes()) == [0]


def test_no_graph_is_kept_alive(trial: WrittenTrial) -> None:
    class Kept:
        """What a node of the graph keeps alive."""

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            context.kept = Kept()
            alive.append(weakref.ref(context.kept))
            return x.clone()

        @staticmethod
        def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    alive: list[weakref.ref[Kept]] = []
    hook = make_hook(trial)
    loop = Loop(hook)
    Node.apply(loop.loss()).backward()
    gc.collect()
    assert [known() for known in alive] == [None]
    hook.close()


def test_functions_of_torch_are_what_they_were_without_a_hook(
    new_trial: Callable[[], WrittenTrial],
) -> None:
    gc.collect()
    originals = torch.autograd.backward, torch.amp.GradScaler.scale, torch.amp.GradScaler.step

    def current() -> tuple[Any, ...]:
        return torch.autograd.backward, torch.amp.GradScaler.scale, torch.amp.GradScaler.step

    def are_watched() -> bool:
        return not any(map(operator.is_, current(), originals))

    hooks = [make_hook(new_trial()) for _ in range(2)]
    assert current() == originals
    loops = [Loop(hook) for hook in hooks]
    assert torch.autograd.backward is originals[0]
    for loop in loops:
        loop.step()
    assert are_watched()
    assert torch.autograd.backward.__name__ == "backward"
    hooks[0].close()
    assert are_watched()
    loops[1].step()
    hooks[1].close()
    assert current() == originals
    # A hook that is forgotten rather than closed is noticed at the next call.
    hook = make_hook(new_trial())
    loop = Loop(hook)
    smd.del_hook()
    del hook
    gc.collect()
    loop.step()
    assert torch.autograd.backward is originals[0]


def test_a_copied_loss_function_does_not_matter(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook)
    copied = copy.deepcopy(loop.net)
    copied(X).sum().backward()  # the model of no hook, before the first step
    loop.step()
    hook.close()
    assert trial.names(0) == {LOSS}
