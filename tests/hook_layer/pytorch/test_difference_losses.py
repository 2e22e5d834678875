"""Distances that a script writes itself are saved with what they compare."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from hook_layer.testing.written_trial import WrittenTrial

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import hook_layer.pytorch as smd  # noqa: E402
from hook_layer.pytorch.difference_losses import DifferenceLosses  # noqa: E402
from tests.hook_layer.pytorch.functional_steps import (  # noqa: E402
    CLASSES,
    NUMBERS,
    UNNAMED,
    Graph,
    X,
    make_hook,
    make_net,
    names_of,
    saved,
)

BOTH = names_of("Loss")
AMOUNTS = torch.tensor([0.13, -1.7, 2.9, 0.456])


def mine(graph: Graph) -> np.ndarray[Any, Any]:
    """Return what the model returns, seen through views."""
    values: np.ndarray[Any, Any] = graph(make_net(None)(X).detach()).numpy()
    return values


def compared(
    trial: WrittenTrial, loss: Graph, outputs: Graph, targets: Any
) -> Mapping[str, np.ndarray[Any, Any]]:
    values = saved(trial, loss)
    assert set(values) == BOTH
    np.testing.assert_array_equal(values["Loss_input_0"], mine(outputs), strict=True)
    assert values["Loss_input_1"].shape == tuple(targets.shape)
    np.testing.assert_allclose(values["Loss_input_1"], targets, rtol=1e-5, atol=1e-6)
    return values


DISTANCES = [
    lambda o: ((o - NUMBERS) ** 2).mean(),
    lambda o: torch.mean((NUMBERS - o) ** 2),
    lambda o: (o - NUMBERS).pow(2).sum() / len(o),
    lambda o: torch.square(o - NUMBERS).mean(),
    lambda o: torch.square(torch.sub(o, NUMBERS)).sum(1).mean(0),
    lambda o: ((d := o - NUMBERS) * d).mean(),
    lambda o: torch.sqrt(((o - NUMBERS) ** 2).mean()),
    lambda o: torch.sqrt(((o - NUMBERS) ** 2).mean() + 1e-8),
    lambda o: ((o - NUMBERS) ** 2).mean() ** 0.5,
    lambda o: 0.5 * ((o - NUMBERS) ** 2).mean(),
    lambda o: ((o - NUMBERS) ** 2).sum() * (1 / 12),
    lambda o: ((o - NUMBERS) ** 2 / 2).mean(),
    lambda o: ((o - NUMBERS) ** 2).view(-1).mean().squeeze(),
    lambda o: (torch.tensor(0.25) * (o - NUMBERS).square()).sum(),
    lambda o: ((o.clone() - NUMBERS) ** 2).mean().double() / 4,
    lambda o: checkpoint(lambda x: ((x - NUMBERS) ** 2).mean(), o, use_reentrant=False),
    lambda o: ((o - NUMBERS).flatten() ** 2).mean(),
]


@pytest.mark.parametrize("loss", DISTANCES)
def test_what_a_distance_compares(trial: WrittenTrial, loss: Graph) -> None:
    values = compared(trial, loss, lambda o: o, NUMBERS)
    own = loss(make_net(None)(X)).detach()
    assert float(values[UNNAMED]) == float(own)


VIEWS: list[Graph] = [
    lambda x: x.view(-1),
    lambda x: x.flatten(),
    lambda x: x.reshape(3, 2, 2),
    lambda x: x.unsqueeze(-1),
    lambda x: x.double(),
]


@pytest.mark.parametrize("view", VIEWS)
def test_what_was_only_viewed_is_in_the_order_of_the_outputs(
    trial: WrittenTrial, view: Graph
) -> None:
    compared(trial, lambda o: (view(o) - view(NUMBERS)).square().mean(), lambda o: o, NUMBERS)


class One(nn.Module):
    """Returns one number for each row, [4, 1]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


SPREAD: list[tuple[Graph, torch.Tensor]] = [
    (lambda o: o, AMOUNTS),
    (lambda o: o.squeeze(1), AMOUNTS.view(4, 1)),
    (lambda o: o, AMOUNTS.view(1, 4)),
]


@pytest.mark.parametrize("distance", [lambda o, t: (o - t) ** 2, lambda o, t: (t - o) ** 2 / 2])
@pytest.mark.parametrize(("view", "targets"), SPREAD)
def test_what_is_spread_over_the_other_has_the_shapes_that_met(
    trial: WrittenTrial, view: Graph, targets: torch.Tensor, distance: Any
) -> None:
    hook, net = make_hook(trial), One()
    hook.register_module(net)
    outputs = view(net(X))
    distance(outputs, targets).mean().backward()
    hook.close()
    values = trial.values(0)
    np.testing.assert_array_equal(values["Loss_input_0"], outputs.detach().numpy(), strict=True)
    expected = targets.squeeze(0)  # whether it had that dimension nobody knows
    assert values["Loss_input_1"].shape == tuple(expected.shape)
    np.testing.assert_allclose(values["Loss_input_1"], expected, rtol=1e-4, atol=1e-5)


def test_whole_numbers_are_whole(trial: WrittenTrial) -> None:
    classes = torch.tensor([[3], [0], [17], [1]]).expand(4, 3)
    values = compared(trial, lambda o: ((o - classes) ** 2).mean(), lambda o: o, classes.float())
    np.testing.assert_array_equal(values["Loss_input_1"], classes.float().numpy())


def test_one_number_for_all_is_one_number(trial: WrittenTrial) -> None:
    values = compared(
        trial, lambda o: (o - 0.9).square().mean(), lambda o: o, torch.full((4, 3), 0.9)
    )
    assert np.ptp(values["Loss_input_1"]) == 0


OTHERS = [
    lambda o: (o**2).mean(),
    lambda o: (o - NUMBERS).abs().mean(),  # its gradient has signs only
    lambda o: (o[:, 0] - AMOUNTS).square().mean(),
    lambda o: (o.t() - NUMBERS.t()).square().mean(),
    lambda o: (o - NUMBERS).mean() ** 2,
    lambda o: -(o - NUMBERS).mean(),  # a gain, maybe
    lambda o: (o - NUMBERS).pow(3).mean(),
    lambda o: (o - o.detach().mean() * o).pow(2).mean(),
    lambda o: (o.sigmoid() - NUMBERS).pow(2).mean(),
    lambda o: (2 * o - NUMBERS).pow(2).mean(),
    lambda o: (o[:, 0] - o[:, 1]).pow(2).mean(),
    lambda o: (NUMBERS * (o - NUMBERS) ** 2).mean(),
    lambda o: ((o - NUMBERS) ** 2).mean() + 0.01 * o.square().mean(),
    lambda o: (o[:, 0] - AMOUNTS).abs().mean() + (o[:, 1] - AMOUNTS).abs().mean(),
    lambda o: (o[:, 0] - AMOUNTS).abs().mean() + 1,
    lambda o: ((o - NUMBERS) ** 2).max(),
    lambda o: ((o - NUMBERS) ** 2)[CLASSES > 0].mean(),
    lambda o: (o[CLASSES > 0] - NUMBERS[CLASSES > 0]).pow(2).mean(),
    lambda o: (o - NUMBERS).mean(0).pow(2).mean(),
    lambda o: (o[:, :1] - torch.linspace(0, 1, 5)).pow(2).mean(),  # levels, of each of which
    lambda o: (o[:, :1] - torch.rand(4, 4)).pow(2).mean(),
    lambda o: (o[:, 0].unsqueeze(1) - AMOUNTS.unsqueeze(0)).abs().mean(),  # of all pairs
    lambda o: (o.unsqueeze(1) - torch.rand(1, 4, 3)).pow(2).mean(),
    lambda o: (o.expand(2, 4, 3) - torch.rand(2, 4, 3)).abs().mean(),
]


@pytest.mark.parametrize("loss", OTHERS)
def test_of_other_losses_nothing_is_said(trial: WrittenTrial, loss: Graph) -> None:
    assert set(saved(trial, loss)) == {UNNAMED}


def test_of_what_was_written_to_nothing_is_said(trial: WrittenTrial) -> None:
    def loss(outputs: torch.Tensor) -> torch.Tensor:
        found = ((outputs - NUMBERS) ** 2).mean()
        with torch.no_grad():
            outputs.mul_(2)
        return found

    assert set(saved(trial, loss)) == {UNNAMED}


class Recorder(TorchDispatchMode):
    """Notes what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.names.add(func.__name__.partition(".")[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "loss", [lambda o: ((o - NUMBERS) ** 2).mean(), lambda o: ((o - NUMBERS) ** 2).mean().sqrt()]
)
def test_no_device_is_waited_for(loss: Graph) -> None:
    written = DifferenceLosses()
    for _ in range(2):
        written.await_outputs()
        outputs = make_net(None)(X)
        written.note(outputs)
        value = loss(outputs)
        with Recorder() as recorder:
            written.watch(value, value.detach())
            value.backward()
            assert len(written.take()) == 2
        assert recorder.names
        assert not recorder.names & {"_local_scalar_dense", "nonzero", "equal", "masked_select"}


@pytest.mark.parametrize("has_rows_only", [True, False])
def test_probabilities_that_may_not_be_of_the_classes(
    trial: WrittenTrial, has_rows_only: bool
) -> None:
    hook = make_hook(trial)
    shape = (3,) if has_rows_only else (3, 1)
    net = nn.Sequential(nn.Linear(3, 3), nn.Unflatten(1, shape), nn.Softmax(1))
    hook.register_module(net)
    (net(X) - NUMBERS.view(4, *shape)).square().mean().backward()
    hook.close()
    assert trial.names(0) == (BOTH if has_rows_only else {UNNAMED})


@pytest.mark.parametrize("targets", [NUMBERS, NUMBERS.bfloat16()])
def test_half_of_the_digits(trial: WrittenTrial, targets: torch.Tensor) -> None:
    hook = make_hook(trial)
    net = nn.Linear(3, 3).bfloat16()
    hook.register_module(net)
    outputs = net(X.bfloat16())
    (outputs - targets).square().mean().backward()
    hook.close()
    is_told = targets.dtype == torch.float32
    assert trial.names(0) == (BOTH if is_told else {UNNAMED})
    if is_told:
        np.testing.assert_allclose(trial.values(0)["Loss_input_1"], NUMBERS.numpy(), atol=1e-6)


def test_the_first_loss_of_a_step_alone_has_inputs(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    outputs = make_net(hook)(X)
    outputs.square().mean().backward(retain_graph=True)
    ((outputs - NUMBERS) ** 2).mean().backward()
    hook.close()
    assert trial.names(0) == {UNNAMED, "Loss_output_1"}


class Several(nn.Module):
    """Returns two things, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"one": self.one(x), "aux": x.sum(), "two": self.two(x)}


def test_models_of_several_outputs(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = Several()
    hook.register_module(net)
    outputs = net(X)["two"]
    (outputs - NUMBERS).square().mean().backward()
    hook.close()
    np.testing.assert_array_equal(trial.values(0)["Loss_input_0"], outputs.detach().numpy())


def test_each_step_has_its_own(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        ((net(X) - (NUMBERS + step)) ** 2).mean().backward()
        optimizer.step()
    hook.close()
    for step in range(3):
        given = trial.values(step)
        np.testing.assert_allclose(given["Loss_input_1"] - step, NUMBERS.numpy(), atol=1e-5)


def test_training_is_the_same_bit_for_bit(new_trial: Callable[[], WrittenTrial]) -> None:
    def trained(hook: smd.Hook | None) -> torch.Tensor:
        net = make_net(hook)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        for _ in range(6):
            optimizer.zero_grad()
            ((net(X + torch.rand(4, 3)) - NUMBERS) ** 2).mean().backward()
            optimizer.step()
        return net.weight.detach().clone()

    hook = make_hook(new_trial())
    watched = trained(hook)
    hook.close()
    assert torch.equal(watched, trained(None))


def test_a_scaled_loss(trial: WrittenTrial) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    compared(trial, lambda o: scaler.scale(((o - NUMBERS) ** 2).mean()), lambda o: o, NUMBERS)


def test_compiled_models_say_nothing(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    compiled = torch.compile(net, backend="eager")
    for _ in range(2):
        ((compiled(X) - NUMBERS) ** 2).mean().backward()
    hook.close()
    assert not hook.report().errors
    assert not net._forward_hooks or trial.names(1)


@pytest.mark.parametrize("end", ["backward", "pass", "close", "step"])
def test_nothing_is_kept_behind_the_pass(trial: WrittenTrial, end: str) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inputs = X.clone()
    outputs = net(inputs)
    alive = [weakref.ref(tensor.untyped_storage()) for tensor in (inputs, outputs)]
    loss = ((outputs - NUMBERS) ** 2).mean()
    if end == "backward":
        loss.backward()
    elif end == "pass":
        with torch.no_grad():
            net(X)
    elif end == "step":
        optimizer.step()
    else:
        hook.close()
    del inputs, outputs, loss
    gc.collect()
    assert [known() for known in alive] == [None, None]
    assert not net._forward_hooks
    hook.close()


@pytest.mark.parametrize("regex", ["^nothing$", "^MSELoss_input_0$"])
def test_nothing_is_kept_that_nobody_asks_for(trial: WrittenTrial, regex: str) -> None:
    hook = make_hook(trial, regex)
    net = make_net(hook)
    outputs = net(X)
    alive = weakref.ref(outputs.untyped_storage())
    assert not net._forward_hooks
    del outputs
    gc.collect()
    assert alive() is None
    hook.close()


def test_a_pass_that_fails_leaves_no_hook_behind(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    with pytest.raises(RuntimeError):
        net(torch.ones(2, 5))
    ((net(X) - NUMBERS) ** 2).mean().backward()
    hook.close()
    assert not net._forward_hooks
    assert trial.names(1) == BOTH
