"""What a step is: a forward pass, or a step of the optimisers that are registered."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hook_layer.pytorch as smd
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.written_trial import WrittenTrial

BY_OPTIMIZER = pytest.mark.parametrize("by_optimizer", [False, True], ids=["default", "optimizer"])
WEIGHT, GRADIENT = "Linear_weight", "gradient/Linear_weight"
LOSS = "MSELoss_output_{}".format
INF = float("inf")


def make_hook(trial: WrittenTrial, **options: Any) -> smd.Hook:
    options.setdefault("include_collections", ["weights", "gradients"])
    return smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), **options)


class Loop:
    """A model with one weight, and the parts of a training loop."""

    def __init__(self, hook: smd.Hook, *, by_optimizer: bool, net: nn.Module | None = None) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(1, 1, bias=False) if net is None else net
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        hook.register_module(self.net)
        hook.register_loss(self.criterion)
        if by_optimizer:
            hook.register_optimizer(self.optimizer)

    def loss(self, x: float = 1.0) -> torch.Tensor:
        result: torch.Tensor = self.criterion(self.net(torch.full((1, 1), x)), torch.zeros(1, 1))
        return result

    def step(self, *inputs: float) -> None:
        self.optimizer.zero_grad()
        for x in inputs or (1.0,):
            self.loss(x).backward()
        self.optimizer.step()

    @property
    def weight(self) -> np.ndarray:
        value: np.ndarray = next(self.net.parameters()).detach().numpy().copy()
        return value

    @property
    def gradient(self) -> np.ndarray:
        value: np.ndarray = next(self.net.parameters()).grad.numpy().copy()
        return value


def names(trial: WrittenTrial) -> list[set[str]]:
    return [trial.names(step) for step in trial.indexes()]


def plain_step(*losses: int) -> set[str]:
    return {WEIGHT, GRADIENT, *(LOSS(i) for i in losses or (0,))}


@BY_OPTIMIZER
def test_one_pass_and_one_optimizer_step(trial: WrittenTrial, by_optimizer: bool) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=by_optimizer)
    expected = []
    for _ in range(3):
        before = loop.weight
        loop.step()
        expected.append((before, loop.gradient))
    hook.flush()
    assert list(trial.indexes()) == [0, 1, 2]  # visible without waiting for the next step
    hook.close()
    assert names(trial) == [plain_step()] * 3
    for step, (weight, gradient) in enumerate(expected):
        np.testing.assert_array_equal(trial.values(step)[WEIGHT], weight)
        np.testing.assert_array_equal(trial.values(step)[GRADIENT], gradient)


def test_accumulated_passes_are_one_step_of_the_optimizer(trial: WrittenTrial) -> None:
    hook = make_hook(trial, include_regex="^Linear_(in|out)put")
    loop = Loop(hook, by_optimizer=True)
    expected = []
    for step in range(3):
        before = loop.weight
        loop.step(*(1.0 + i for i in range(step + 1)))
        expected.append((before, loop.gradient))
    hook.close()
    assert hook.report().steps_seen == 3
    assert hook.report().late_tensors == 0
    for step, (weight, gradient) in enumerate(expected):
        values = trial.values(step)
        passes = range(step + 1)
        kinds = ("Linear_input_{}", "Linear_output_{}", LOSS(0)[:-1] + "{}")
        assert set(values) == {WEIGHT, GRADIENT, *(k.format(i) for k in kinds for i in passes)}
        np.testing.assert_array_equal(values[WEIGHT], weight)
        np.testing.assert_array_equal(values[GRADIENT], gradient)
        assert [float(values[f"Linear_input_{i}"].item()) for i in passes] == [
            i + 1.0 for i in passes
        ]


def test_accumulated_passes_are_steps_by_default(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=False)
    for _ in range(2):
        loop.step(1.0, 2.0)
    hook.close()
    assert names(trial) == [plain_step()] * 4


@pytest.mark.parametrize("registered", [(0, 1), (1, 0)])
def test_several_optimizers_make_one_step(trial: WrittenTrial, registered: tuple[int, ...]) -> None:
    hook = make_hook(trial)
    nets = [nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)]
    pair = nn.Sequential(*nets)
    hook.register_module(pair)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    for i in registered:
        hook.register_optimizer(optimizers[i])
    for _ in range(3):
        for _ in range(2):  # the first optimiser steps twice, as a critic does
            pair(torch.ones(1, 1)).sum().backward()
            optimizers[0].step()
        pair(torch.ones(1, 1)).sum().backward()
        optimizers[1].step()
    hook.close()
    assert hook.report().steps_seen == 3
    parameters = {f"Sequential_{i}.weight" for i in range(2)}
    losses = {f"Loss_output_{i}" for i in range(3)}
    assert names(trial) == [parameters | {f"gradient/{n}" for n in parameters} | losses] * 3


@BY_OPTIMIZER
def test_losses_and_optimizers_that_take_turns(trial: WrittenTrial, by_optimizer: bool) -> None:
    hook = make_hook(trial)
    nets = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    hook.register_module(nets)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    for optimizer in optimizers if by_optimizer else ():
        hook.register_optimizer(optimizer)
    for _ in range(4):
        hidden = nets[0](torch.ones(1, 1))
        nets(torch.ones(1, 1))
        losses = [hidden.square().sum(), nets[1](hidden.detach()).square().sum()]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    hook.close()
    parameters = {f"Sequential_{i}.weight" for i in range(2)}
    expected = parameters | {f"gradient/{n}" for n in parameters}
    assert names(trial) == [expected | {"Loss_output_0", "Loss_output_1"}] * 4
    assert hook.report().late_tensors == 0


def test_models_that_train_each_other(trial: WrittenTrial) -> None:
    class Generator(nn.Linear):
        pass

    class Critic(nn.Linear):
        pass

    hook = make_hook(trial)
    generator, critic = Generator(1, 1), Critic(1, 1)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (generator, critic)]
    for net, optimizer in zip((generator, critic), optimizers, strict=True):
        hook.register_module(net)
        hook.register_optimizer(optimizer)
    before = []
    for _ in range(3):
        before.append([net.weight.item() for net in (generator, critic)])
        for optimizer in reversed(optimizers):
            optimizer.zero_grad()
            critic(generator(torch.ones(1, 1))).mean().backward()
            optimizer.step()
    hook.close()
    assert hook.report().steps_seen == 3
    for step, weights in enumerate(before):
        values = trial.values(step)
        assert [values[n].item() for n in ("Generator_weight", "Critic_weight")] == weights
        assert set(values) >= {"gradient/Generator_weight", "gradient/Critic_weight"}


@pytest.mark.parametrize("how", ["no_grad", "inference_mode", "eval", "both"])
def test_evaluation_without_a_mode_is_no_step_of_the_optimizer(
    trial: WrittenTrial, how: str
) -> None:
    hook = make_hook(trial, include_regex="^Linear_output")
    loop = Loop(hook, by_optimizer=True)
    contexts = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}

    def evaluate() -> None:
        loop.net.train(how not in ("eval", "both"))
        with contexts.get(how, torch.no_grad if how == "both" else torch.enable_grad)():
            for _ in range(3):
                loop.loss(7.0)
        loop.net.train()

    evaluate()
    for _ in range(2):
        loop.optimizer.zero_grad()
        loop.loss(1.0).backward()
        evaluate()  # in the middle of a step
        loop.loss(2.0).backward()
        loop.optimizer.step()
        evaluate()
    hook.close()
    assert hook.report().steps_seen == 2
    assert names(trial) == [plain_step(0, 1) | {"Linear_output_0", "Linear_output_1"}] * 2
    assert hook.report().late_tensors == 0


@BY_OPTIMIZER
def test_evaluation_with_a_mode_has_steps_of_its_own(
    trial: WrittenTrial, by_optimizer: bool
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=by_optimizer)
    for _ in range(2):
        hook.set_mode(smd.modes.TRAIN)
        loop.step()
        hook.set_mode(smd.modes.EVAL)
        with torch.no_grad():
            for _ in range(2):
                loop.loss()
    hook.close()
    found = [(index.mode, index.mode_step) for index in trial.indexes().values()]
    train, evaluation = ModeKeys.TRAIN, ModeKeys.EVAL
    assert found == [
        (train, 0),
        (evaluation, 0),
        (evaluation, 1),
        (train, 1),
        (evaluation, 2),
        (evaluation, 3),
    ]
    assert names(trial)[:3] == [plain_step(), {WEIGHT, LOSS(0)}, {WEIGHT, LOSS(0)}]


def test_a_mode_that_changes_within_a_step_ends_it(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    hook.set_mode(smd.modes.TRAIN)
    loop.loss().backward()
    hook.set_mode(smd.modes.EVAL)
    loop.loss()
    hook.set_mode(smd.modes.TRAIN)
    loop.loss().backward()
    loop.optimizer.step()
    hook.close()
    assert names(trial) == [plain_step(), {WEIGHT, LOSS(0)}, plain_step()]


def test_a_model_may_be_trained_in_evaluation_mode(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    loop.net.eval()
    for _ in range(4):
        loop.step()
    hook.close()
    assert "the model trained in evaluation mode" in caplog.text
    assert names(trial) == [plain_step()] * 3


@BY_OPTIMIZER
def test_an_exception_and_a_batch_that_is_skipped(trial: WrittenTrial, by_optimizer: bool) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=by_optimizer)
    loop.step()
    with pytest.raises(RuntimeError):
        loop.net(torch.ones(1, 2))
    loop.loss(INF)  # "if not torch.isfinite(loss): continue"
    loop.step()
    hook.close()
    expected = {
        False: [plain_step(), {WEIGHT}, {WEIGHT, LOSS(0)}, plain_step()],
        True: [plain_step(), plain_step(0, 1)],
    }
    assert names(trial) == expected[by_optimizer]
    assert not hook.report().errors


@BY_OPTIMIZER
def test_an_early_exit_keeps_what_there_is(trial: WrittenTrial, by_optimizer: bool) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=by_optimizer)
    loop.step()
    loop.loss().backward()
    hook.close()
    assert names(trial) == [plain_step(), plain_step()]


@pytest.mark.parametrize("fused", [False, True])
@BY_OPTIMIZER
def test_a_step_that_the_scaler_leaves_out_is_one(
    trial: WrittenTrial, by_optimizer: bool, fused: bool
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=by_optimizer)
    loop.optimizer = torch.optim.SGD(loop.net.parameters(), lr=0.0, fused=fused)
    if by_optimizer:
        hook.register_optimizer(loop.optimizer)  # the one of before is forgotten
        gc.collect()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for x in (1.0, INF, 2.0, INF, INF, 1.0):
        loop.optimizer.zero_grad()
        scaler.scale(loop.loss(x)).backward()
        scaler.step(loop.optimizer)
        scaler.update()
    hook.close()
    left_out = plain_step() - {GRADIENT}
    kept = plain_step()
    assert names(trial) == [kept, left_out, kept, left_out, left_out, kept]
    gradients = [trial.values(step)[GRADIENT].item() for step in (0, 2, 5)]
    assert gradients[1] == pytest.approx(4 * gradients[0])
    assert gradients[2] == gradients[0]


def test_accumulation_with_a_scaler(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for inputs in [(1.0, 2.0), (1.0, INF), (3.0, 1.0)]:
        loop.optimizer.zero_grad()
        for x in inputs:
            scaler.scale(loop.loss(x)).backward()
        scaler.step(loop.optimizer)
        scaler.update()
    hook.close()
    assert names(trial) == [plain_step(0, 1), plain_step(0, 1) - {GRADIENT}, plain_step(0, 1)]


@BY_OPTIMIZER
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_activation_checkpointing_repeats_is_no_step(
    trial: WrittenTrial, by_optimizer: bool, use_reentrant: bool
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(1, 1), nn.Tanh())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = checkpoint(self.block, x, use_reentrant=use_reentrant)
            return result

    hook = make_hook(trial, include_regex="output")
    net = Net()
    loop = Loop(hook, by_optimizer=by_optimizer, net=net)
    for _ in range(3):
        loop.optimizer.zero_grad()
        x = torch.ones(1, 1, requires_grad=True)
        outputs = checkpoint(net, x, use_reentrant=use_reentrant)
        loop.criterion(outputs, torch.zeros(1, 1)).backward()
        loop.optimizer.step()
    hook.close()
    assert hook.report().steps_seen == 3
    outputs = {f"{name}_output_0" for name in ("Net", "block", "block.0", "block.1", "MSELoss")}
    parameters = {"Net_block.0.weight"}
    gradients = {f"gradient/Net_block.0.{name}" for name in ("weight", "bias")}
    assert names(trial) == [outputs | parameters | gradients] * 3


@BY_OPTIMIZER
def test_a_closure_that_computes_the_loss(trial: WrittenTrial, by_optimizer: bool) -> None:
    hook = make_hook(trial, include_collections=["weights", "gradients", "optimizer_variables"])
    loop = Loop(hook, by_optimizer=by_optimizer)
    loop.optimizer = torch.optim.SGD(loop.net.parameters(), lr=0.1, momentum=0.9)
    if by_optimizer:
        hook.register_optimizer(loop.optimizer)
        gc.collect()
    expected = []

    def closure() -> torch.Tensor:
        loop.optimizer.zero_grad()
        loss = loop.loss()
        loss.backward()
        return loss

    for _ in range(4):
        state = loop.optimizer.state[loop.net.weight]
        expected.append(state["momentum_buffer"].item() if state else None)
        loop.optimizer.step(closure)
    hook.flush()
    assert len(trial.indexes()) == 4
    hook.close()
    momentum = f"optimizer_variables/{WEIGHT}/momentum_buffer"
    assert names(trial) == [plain_step()] + [plain_step() | {momentum}] * 3
    found = [trial.values(step)[momentum].item() for step in (1, 2, 3)]
    assert found == expected[1:]


def test_lbfgs_calls_the_model_several_times_in_a_step(trial: WrittenTrial) -> None:
    hook = make_hook(trial, include_collections=["gradients"])
    net = nn.Linear(1, 1, bias=False)
    hook.register_module(net)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
    hook.register_optimizer(optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (net(torch.ones(1, 1)) - 1).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    hook.close()
    assert hook.report().steps_seen == 2
    assert trial.names(0) >= {GRADIENT, "Loss_output_0", "Loss_output_1"}


def test_wrappers_around_optimizers_are_looked_through(trial: WrittenTrial) -> None:
    class Wrapper:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=False)
    hook.register_optimizer(Wrapper(Wrapper(loop.optimizer)))
    for _ in range(2):
        loop.step(1.0, 2.0)
    hook.close()
    assert hook.report().steps_seen == 2


def test_only_optimizers_can_be_registered(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    with pytest.raises(ValueError, match=r"must be a torch\.optim\.Optimizer"):
        hook.register_optimizer(nn.Linear(1, 1))
    hook.close()


@pytest.mark.parametrize("num_registered", [1, 2])
def test_an_optimizer_that_never_steps_is_not_waited_for_without_end(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture, num_registered: int
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    idle = [torch.optim.Adam([nn.Parameter(torch.ones(1))]) for _ in range(num_registered)]
    for optimizer in idle:
        hook.register_optimizer(optimizer)
    first = 10 * (1 + num_registered)
    for _ in range(first + 3):
        loop.step()
    hook.close()
    assert caplog.text.count("steps no longer wait for them: Adam") == 1
    assert names(trial) == [plain_step(*range(first))] + [plain_step()] * 3


def test_a_critic_may_step_several_times(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    rare = torch.optim.Adam([nn.Parameter(torch.ones(1))])
    hook.register_optimizer(rare)
    for _ in range(4):
        for _ in range(10):
            loop.step()
        rare.step()
    hook.close()
    assert hook.report().steps_seen == 4
    assert not caplog.text


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_optimizer_that_is_replaced(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture, is_gone: bool
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    first = loop.optimizer
    for _ in range(2):
        loop.step(1.0, 1.0)
    loop.optimizer = torch.optim.SGD(loop.net.parameters(), lr=0.01)
    if is_gone:
        del first
        gc.collect()
    for _ in range(12):
        loop.step(1.0, 1.0)
    hook.close()
    assert caplog.text.count("replaces it") == 1
    waited = [] if is_gone else [plain_step(*range(20))]
    assert names(trial) == [plain_step(0, 1)] * 2 + waited + [plain_step(0, 1)] * (
        12 if is_gone else 2
    )


def test_an_optimizer_that_is_gone_leaves_the_others(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    other = torch.optim.Adam([nn.Parameter(torch.ones(1))])
    hook.register_optimizer(other)
    del other
    gc.collect()
    for _ in range(3):
        loop.step(1.0, 1.0)
    hook.close()
    assert names(trial) == [plain_step(0, 1)] * 3


def test_a_step_does_not_outgrow_the_queue(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial, include_regex="Linear_output", queue_bytes=1 << 20)
    net = nn.Linear(64, 64, bias=False)
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hook.register_optimizer(optimizer)
    largest = 0
    for _ in range(64):
        net(torch.ones(1024, 64)).sum().backward()  # 256 KiB of outputs
        assert hook.recorder.record is not None
        largest = max(largest, hook.recorder.record.nbytes)
    optimizer.step()
    hook.close()
    assert largest < 2 << 20
    assert caplog.text.count("ended before all optimizers stepped") == 1
    found = [name for step in names(trial) for name in step if "_output_" in name]
    assert sum("Linear_output" in name for name in found) == 64


def test_an_optimizer_of_other_parameters_does_not_matter(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=True)
    other = nn.Linear(1, 1)
    others = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(2):
        loop.loss().backward()
        other(torch.ones(1)).sum().backward()
        others.step()
        loop.loss().backward()
        loop.optimizer.step()
    hook.close()
    assert hook.report().steps_seen == 2
    assert [LOSS(1) in found for found in names(trial)] == [True, True]


@BY_OPTIMIZER
def test_scalars_after_the_optimizer_belong_to_the_step(
    trial: WrittenTrial, by_optimizer: bool
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=by_optimizer)
    for step in range(3):
        loop.step()
        hook.save_scalar("lr", step, timestamp=12.5)
    hook.close()
    records = [trial.records(step)["scalar/lr"] for step in range(3)]
    assert [record.value.tolist() for record in records] == [[0], [1], [2]]
    assert {record.wall_time for record in records} == {12.5}


@BY_OPTIMIZER
def test_compiled_models_have_the_same_steps(trial: WrittenTrial, by_optimizer: bool) -> None:
    torch.compiler.reset()
    hook = make_hook(trial, include_regex="^Linear_output")
    loop = Loop(hook, by_optimizer=by_optimizer)
    compiled = torch.compile(loop.net, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        loop.optimizer.zero_grad()
        for _ in range(2):
            loop.criterion(compiled(torch.ones(1, 1)), torch.zeros(1, 1)).backward()
        loop.optimizer.step()
        with torch.no_grad():
            loop.criterion(compiled(torch.ones(1, 1)), torch.zeros(1, 1))
    hook.close()
    torch.compiler.reset()
    both = plain_step(0, 1) | {"Linear_output_0", "Linear_output_1"}
    one = plain_step() | {"Linear_output_0"}
    by_default = [one, one, one - {GRADIENT}] * 2
    assert names(trial) == ([both] * 2 if by_optimizer else by_default)


@BY_OPTIMIZER
@pytest.mark.parametrize("num_calls", [1, 2])
def test_a_second_call_of_the_model_recommends_register_optimizer(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture, by_optimizer: bool, num_calls: int
) -> None:
    hook = make_hook(trial)
    loop = Loop(hook, by_optimizer=by_optimizer)
    for _ in range(10):
        loop.step(*[1.0] * num_calls)
    hook.close()
    is_advised = num_calls > 1 and not by_optimizer
    assert caplog.text.count("hook.register_optimizer(optimizer) makes them one") == is_advised
