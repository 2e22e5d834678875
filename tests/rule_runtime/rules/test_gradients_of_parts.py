"""Real models of which parts learn: adapters, frozen trunks, experts, one time step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rule_runtime.rules.missing_gradient import MissingGradient
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from tests.rule_runtime.rules.torch_runs import findings, statistics_hook, train

NUM_STEPS, COLUMNS = 14, 24
RULES = (
    ("MissingGradient", MissingGradient()),
    ("VanishingGradient", VanishingGradient(max_share=1e-6, patience=10)),
)


class Adapted(nn.Module):
    """A frozen linear layer beside an adapter of two."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(requires_grad=False)
        self.dropout = nn.Dropout(dropout)
        self.down, self.up = nn.Linear(inputs, 4), nn.Linear(4, outputs)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(self.dropout(x)))


class Parts(nn.Module):
    """A model with some parts, and a function of them."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = forward, nn.ModuleDict(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.parts, x)


def linear(inputs: int, outputs: int, *, frozen: bool = False) -> nn.Module:
    return nn.Linear(inputs, outputs).requires_grad_(not frozen)


def recomputed(parts: Any, x: Tensor) -> Tensor:
    hidden = parts["stem"](x).requires_grad_()
    hidden = checkpoint(parts["block"], hidden, use_reentrant=True)
    return parts["head"](hidden)


def one_step(parts: Any, x: Tensor, times: int = 1) -> Tensor:
    outputs, _ = parts["rnn"](x.view(len(x), times, -1))
    return parts["head"](outputs[:, 0])


def of_expert(parts: Any, x: Tensor) -> Tensor:
    idle, busy = parts["idle"](x[:0]), parts["busy"](x)
    return parts["head"](busy.index_add(0, torch.arange(0), idle))


def with_other_head(parts: Any, x: Tensor) -> Tensor:
    hidden = parts["stem"](x).tanh()
    other = parts["other"](hidden)
    return parts["head"](hidden) + 0.0 * other


def adapted_at_the_end(parts: Any, x: Tensor) -> Tensor:
    return parts["head"](parts["adapted"](parts["stem"](x).relu()).relu())


class Gated(nn.Module):
    """A value and a gate of the same input; nothing reaches the gate's gradient."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.gate = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.value.T) * ((x @ self.gate.T) * 0.0).sigmoid()


def recurrent(
    kind: Callable[..., nn.Module], inputs: int, outputs: int = COLUMNS, **given: Any
) -> Callable[[], nn.Module]:
    """Return a model with a recurrent layer that gets one time step."""
    return lambda: Parts(
        lambda parts, x: one_step(parts, x[:, :inputs].contiguous()),
        rnn=kind(inputs, COLUMNS, batch_first=True, **given),
        head=linear(outputs, 4),
    )


def cell(kind: Callable[..., nn.Module]) -> Callable[[], nn.Module]:
    """Return a model with a recurrent cell that is called once."""

    def forward(parts: Any, x: Tensor) -> Tensor:
        state = parts["cell"](x)
        return parts["head"](state[0] if isinstance(state, tuple) else state)

    return lambda: Parts(forward, cell=kind(COLUMNS, COLUMNS), head=linear(COLUMNS, 4))


HEALTHY: dict[str, Callable[[], nn.Module]] = {
    "adapters": lambda: nn.Sequential(Adapted(COLUMNS, 32), nn.ReLU(), Adapted(32, 4, 0.1)),
    "an adapter that is the whole model": lambda: Adapted(COLUMNS, 32),
    "adapters behind a stem, recomputed": lambda: Parts(
        recomputed, stem=linear(COLUMNS, 32, frozen=True), block=Adapted(32, 32), head=linear(32, 4)
    ),
    "an adapter with dropout": lambda: Parts(
        adapted_at_the_end,
        stem=linear(COLUMNS, 32, frozen=True),
        adapted=Adapted(32, 32, 0.1),
        head=linear(32, 4),
    ),
    "one time step": lambda: Parts(
        one_step, rnn=nn.LSTM(COLUMNS, 32, 2, batch_first=True), head=linear(32, 4)
    ),
    **{
        f"one time step of {kind.__name__} with {inputs} inputs": recurrent(kind, inputs)
        for kind in (nn.RNN, nn.LSTM, nn.GRU)
        for inputs in (12, COLUMNS)
    },
    "one time step in two directions": recurrent(nn.LSTM, 12, 2 * COLUMNS, bidirectional=True),
    "one time step without biases": recurrent(nn.GRU, COLUMNS, bias=False),
    "one step of a cell": cell(nn.RNNCell),
    "one step of a cell with a state of its own": cell(nn.LSTMCell),
    "an expert without tokens": lambda: Parts(
        of_expert, idle=linear(COLUMNS, 32), busy=linear(COLUMNS, 32), head=linear(32, 4)
    ),
    "a head whose loss has the weight 0": lambda: Parts(
        with_other_head, stem=linear(COLUMNS, 32), other=linear(32, 4), head=linear(32, 4)
    ),
}
SICK: dict[str, Callable[[], nn.Module]] = {
    "a frozen trunk": lambda: nn.Sequential(
        nn.Sequential(linear(COLUMNS, 32, frozen=True), nn.ReLU(), linear(32, 32, frozen=True)),
        linear(32, 4),
    ),
    "the state of the first of two time steps": lambda: Parts(
        lambda parts, x: one_step(parts, x, 2),
        rnn=nn.GRU(COLUMNS // 2, 32, batch_first=True),
        head=linear(32, 4),
    ),
    "dead units": lambda: Parts(
        lambda parts, x: parts["head"]((parts["stem"](x) - 100).relu()),
        stem=linear(COLUMNS, COLUMNS),
        head=linear(COLUMNS, 4),
    ),
}


def found_in(folder: Path, model: nn.Module) -> set[str]:
    """Return the rules that find something in a training."""

    def batch() -> tuple[Tensor, Tensor]:
        return torch.randn(16, COLUMNS), torch.empty(0)

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, 1e-2)
    hook = statistics_hook(folder, model)
    train(hook, model, batch, lambda out, _: out.square().mean(), optimizer, steps=NUM_STEPS)
    return {*findings(folder, RULES, are_evaluated=True)}


@pytest.mark.parametrize("make", HEALTHY.values(), ids=HEALTHY)
def test_what_needs_no_gradient(tmp_path: Path, make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    assert not found_in(tmp_path, make())


@pytest.mark.parametrize("make", SICK.values(), ids=SICK)
def test_what_needs_a_gradient(tmp_path: Path, make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    assert "MissingGradient" in found_in(tmp_path, make())


@pytest.mark.parametrize("units", [COLUMNS, 2 * COLUMNS, 4 * COLUMNS])
def test_a_gate_is_no_matrix_of_a_state(tmp_path: Path, units: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Gated(COLUMNS, units), linear(units, 4))
    assert "VanishingGradient" in found_in(tmp_path, model)
