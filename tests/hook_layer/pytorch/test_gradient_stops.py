"""What keeps gradients from parameters is found in the first saved steps, and changes no result."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hook_layer.pytorch as smd
from hook_layer.pytorch import gradient_stops
from hook_layer.testing.written_trial import WrittenTrial

Between = Callable[[nn.Module, Tensor], Tensor]
ENCODER = ("Net_encoder.weight", "Net_encoder.bias")


class Net(nn.Module):
    def __init__(self, between: Between) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(self.encoder, x))


Loss = Callable[[Tensor], Tensor]


def train(
    hook: smd.Hook | None, between: Between, loss: Loss = Tensor.sum, num_steps: int = 3
) -> list[Tensor]:
    torch.manual_seed(0)
    net = Net(between)
    if hook is not None:
        hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(num_steps):
        value = loss(net(torch.randn(16, 6)))
        optimizer.zero_grad()
        value.backward(**({} if value.dim() == 0 else {"gradient": torch.ones_like(value)}))
        optimizer.step()
    return [*net.parameters()]


def found(
    trial: WrittenTrial, between: Between, loss: Loss = Tensor.sum, num_steps: int = 3
) -> dict[str, tuple[str, ...]]:
    """Return the stops that a hook finds, and check that training is unchanged."""
    hook = smd.Hook(trial.uri, include_collections=["losses"], save_config=EVERY_STEP)
    watched = train(hook, between, loss, num_steps)
    hook.close()
    assert hook.report().errors == {}
    for own, plain in zip(watched, train(None, between, loss, num_steps), strict=True):
        assert torch.equal(own, plain)
    stops = trial.collections().gradient_stops
    return {text: tuple(names) for text, names in stops.items()}


EVERY_STEP = smd.SaveConfig(save_interval=1)


def under_no_grad(part: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return part(x)


def in_checkpoint(part: nn.Module, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, which says the same
        return checkpoint(part, x, use_reentrant=True)


def called(part: nn.Module, x: Tensor) -> Tensor:
    return part(x).relu()


def in_checkpoint_of_function(part: nn.Module, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return checkpoint(called, part, x, use_reentrant=True)


def written(part: nn.Module, x: Tensor) -> Tensor:
    buffer = torch.zeros(16, 8)
    buffer[:] = part(x).detach()
    return buffer


SICK: dict[str, tuple[Between, str]] = {
    "detach": (lambda part, x: part(x).detach(), "`detach`"),
    "data": (lambda part, x: part(x).data, "`data`"),
    "tensor": (lambda part, x: torch.tensor(part(x).tolist()), "`tolist`"),
    "numpy": (lambda part, x: torch.from_numpy(part(x).detach().numpy()), "`detach`"),
    "comparison": (lambda part, x: (part(x) > 0).float(), "`gt`"),
    "argmax": (lambda part, x: F.one_hot(part(x).argmax(1), 8).float(), "`argmax`"),
    "indices": (lambda part, x: part(x).topk(8).indices.float(), "`topk`"),
    "round": (lambda part, x: torch.round(part(x)), "`round`"),
    "in place": (lambda part, x: part(x).sign_(), "`sign`"),
    "rounding mode": (lambda part, x: torch.div(part(x), 2, rounding_mode="floor"), "`div`"),
    "sample": (lambda part, x: torch.normal(part(x), 0.1), "`normal`"),
    "written": (written, "`detach`"),
    "no_grad": (under_no_grad, "torch.no_grad()"),
    "checkpoint": (in_checkpoint, "a reentrant checkpoint"),
    "checkpoint of a function": (in_checkpoint_of_function, "a reentrant checkpoint"),
}


@pytest.mark.parametrize("name", SICK)
def test_what_stops_gradients_is_named_with_its_line(trial: WrittenTrial, name: str) -> None:
    between, text = SICK[name]
    (stop,) = found(trial, between).items()
    assert stop[0].startswith(f"{text} at {Path(__file__).name}:")
    assert set(stop[1]) == set(ENCODER)
    lines, first = inspect.getsourcelines(between)
    number = int(stop[0].partition(".py:")[2].partition(",")[0])
    assert first <= number < first + len(lines)
    is_within = text.startswith(("torch", "a re"))
    assert stop[0].endswith(", after Net_encoder") is not is_within


@pytest.mark.parametrize(
    "function",
    [
        *(torch.round, torch.floor, torch.ceil, torch.trunc, torch.sign, torch.bernoulli),
        *(torch.poisson, lambda x: torch.round(x, decimals=1), lambda x: torch.normal(0.0, x)),
        *(lambda x: torch.normal(x, x), lambda x: torch.div(x, x, rounding_mode="trunc")),
    ],
)
def test_operations_with_a_gradient_of_zero_have_one(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.rand(8, requires_grad=True)
    outputs = function(x)
    assert outputs.grad_fn is not None
    assert gradient_stops._ZERO.fullmatch(outputs.grad_fn.name())
    assert not torch.autograd.grad(outputs.sum(), x)[0].any()


class Straight(torch.autograd.Function):
    """Rounds, and passes gradients through."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> Any:
        return gradients[0]


def straight_through(part: nn.Module, x: Tensor) -> Tensor:
    outputs = part(x)
    return outputs + (outputs.round() - outputs).detach()


def long(part: nn.Module, x: Tensor) -> Tensor:
    outputs = part(x)
    for _ in range(1000):
        outputs = outputs * 1.0001
        outputs.detach()
    return outputs


def with_penalty(part: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    outputs = part(x)
    (gradient,) = torch.autograd.grad(outputs.square().sum(), x, create_graph=True)
    return outputs + gradient.square().sum()


def with_gate(part: nn.Module, x: Tensor) -> Tensor:
    outputs = part(x)
    return outputs * (outputs > 0) + torch.zeros_like(outputs) / outputs.max().item()


HEALTHY: dict[str, Between] = {
    "nothing": lambda part, x: part(x),
    "gate": with_gate,
    "straight through": straight_through,
    "custom function": lambda part, x: Straight.apply(part(x)),
    "gumbel": lambda part, x: F.gumbel_softmax(part(x), hard=True),
    "checkpoint": lambda part, x: checkpoint(part, x, use_reentrant=False),
    "reentrant checkpoint": lambda part, x: in_checkpoint(part, x.requires_grad_()),
    "no rounding mode": lambda part, x: torch.div(part(x), 2, rounding_mode=None),
    "stop gradient": lambda part, x: part(x) - part(x).detach(),
    "accuracy": lambda part, x: part(x) + 0 * under_no_grad(part, x).argmax(1)[:, None],
    "1,000 operations": long,
    "double backward": with_penalty,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_parameters_with_a_gradient_have_no_stop(trial: WrittenTrial, name: str) -> None:
    assert found(trial, HEALTHY[name]) == {}


LOSSES: dict[str, Loss] = {
    "vector": lambda outputs: outputs.sum(1),
    "matrix": lambda outputs: outputs,
    "complex": lambda outputs: torch.complex(outputs, outputs).abs().sum(),
    "1,000 operations": lambda o: torch.stack([(o * n).mean() for n in range(500)]).sum(),
    "half": lambda outputs: outputs.bfloat16().sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_any_loss_is_followed(trial: WrittenTrial, name: str) -> None:
    assert found(trial, lambda part, x: part(x), LOSSES[name]) == {}
    (stop,) = found(trial, lambda part, x: part(x).detach(), LOSSES[name])
    assert stop.startswith("`detach`")


def test_a_loss_without_a_graph_is_explained(trial: WrittenTrial) -> None:
    def accuracy(outputs: Tensor) -> Tensor:
        _ = outputs.detach().mean()  # not what the loss uses
        return (outputs.argmax(1) == 1).float().mean().requires_grad_()

    (stop,) = found(trial, lambda part, x: part(x), accuracy).items()
    assert stop[0].startswith("`argmax`")
    assert {"Net_encoder.weight", "Net_head.weight"} <= set(stop[1])


def test_graphs_that_are_too_large_are_not_explained(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_stops, "_MAX_NODES", 100)
    assert found(trial, lambda part, x: long(part, x).detach()) == {}


def test_a_bounded_number_of_stops_is_remembered(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_stops, "_MAX_STOPS", 0)
    assert found(trial, lambda part, x: part(x).detach()) == {}


def test_only_the_first_saved_steps_are_observed(trial: WrittenTrial) -> None:
    depths = []

    def between(part: nn.Module, x: Tensor) -> Tensor:
        depths.append(torch._C._len_torch_function_stack())
        return part(x).detach()

    hook = smd.Hook(
        trial.uri,
        include_collections=["losses"],
        save_config=smd.SaveConfig(save_interval=2),
    )
    train(hook, between, num_steps=7)
    hook.close()
    assert depths == [1, 0, 1, 0, 0, 0, 0]


def test_attention_keeps_its_fast_path(trial: WrittenTrial) -> None:
    teacher = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def between(part: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad():
            targets = teacher(part(x)[None])[0]
        return part(x).detach() + targets

    (stop,) = found(trial, between)
    assert stop.startswith("`detach`")


def test_a_part_that_another_loss_reaches_has_no_stop(trial: WrittenTrial) -> None:
    """As in a GAN: the loss of the critic does not reach the generator, and that of it does."""
    generator, critic = nn.Linear(4, 2), nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (generator, critic)]
    hook = smd.Hook(trial.uri, include_collections=["losses"], save_config=EVERY_STEP)
    hook.register_module(generator)
    hook.register_module(critic)
    for optimizer in optimizers:
        hook.register_optimizer(optimizer)
    for _ in range(3):
        fake = generator(torch.randn(8, 4))
        critic(fake.detach()).mean().backward()
        optimizers[1].step()
        critic(fake).mean().neg().backward()
        optimizers[0].step()
    hook.close()
    assert trial.collections().gradient_stops == {}


def test_errors_end_the_observation_and_never_the_training(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> str:
        raise RuntimeError("no frame")

    monkeypatch.setattr(gradient_stops, "_described", fails)
    hook = smd.Hook(trial.uri, include_collections=["losses"], save_config=EVERY_STEP)
    train(hook, lambda part, x: part(x).detach())
    hook.close()
    assert set(hook.report().errors) == {"gradient stops"}
    assert trial.collections().gradient_stops == {}
