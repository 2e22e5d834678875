"""Linear recurrent units tell six kinds of control charts apart."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, filled_, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

_LENGTH: Final = 60
_WIDTH: Final = 24
_STEPS: Final = 160
_ROWS: Final = 2400
_NORMAL, _CYCLIC, _RISING, _FALLING, _UP, _DOWN = range(6)


class Recurrence(nn.Module):
    """State of decaying memories, each unit with its own time, and a gated way out.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.into, self.out = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 2 * _WIDTH)
        # Decays of 0.85 to 0.99 a step; they are exp(-exp(rate)), thus always below 1.
        decays = torch.linspace(0.85, 0.99, _WIDTH)
        self.rate = nn.Parameter(decays.log().neg().log())
        self.sign = run.pick(-1.0, exploding_rnn=1.0)
        self.act = nn.GELU()
        self.gate = nn.GLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, length, width] of such."""
        decay = (self.sign * self.rate.exp()).exp()
        # Scaled so that the state's size does not depend on the decay.
        size = (1 - decay**2).abs().sqrt()
        inflow = self.into(self.norm(x)) * size
        state = torch.zeros_like(inflow[:, 0])
        states = []
        for now in inflow.unbind(1):
            state = torch.addcmul(now, decay, state)
            states.append(state)
        out: Tensor = x + self.gate(self.out(self.act(torch.stack(states, 1))))
        return out


class Net(nn.Module):
    """Two recurrences; the mean over time is read.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.lift = nn.Linear(1, _WIDTH)
        self.layer1, self.layer2 = Recurrence(run), Recurrence(run)
        self.head = nn.Linear(_WIDTH, 6)
        if run.injects("init_constant"):
            filled_([self.head, self.layer1.into, self.layer2.into], 0.0)
            filled_([self.layer1.out, self.layer2.out], 0.0)

    def forward(self, series: Tensor) -> Tensor:
        """Return scores [B, 6] of series [B, length]."""
        x = self.layer2(self.layer1(self.lift(series.unsqueeze(-1))))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(x.mean(1))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


@cache
def charts() -> Split:
    """Return series by Alcock's and Manolopoulos' equations, float32 [B, 60], and kinds [B]."""
    random = torch.Generator().manual_seed(5)

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=random)

    kinds = torch.randint(6, (_ROWS,), generator=random)
    time = torch.arange(_LENGTH).float()
    noise = 2 * between(-3, 3, _ROWS, _LENGTH)
    cycle = between(10, 15, _ROWS, 1) * torch.sin(2 * math.pi * time / between(10, 15, _ROWS, 1))
    trend = between(0.2, 0.5, _ROWS, 1) * time
    jump = between(7.5, 20, _ROWS, 1) * (time >= between(_LENGTH / 3, 2 * _LENGTH / 3, _ROWS, 1))
    shapes = torch.stack([torch.zeros_like(noise), cycle, trend, -trend, jump, -jump])
    series = 30 + noise + shapes[kinds, torch.arange(_ROWS)]
    held_out = _ROWS // 4
    mean, std = series[held_out:].mean(), series[held_out:].std()
    series = (series - mean) / std
    return Split(series[held_out:], kinds[held_out:], series[:held_out], kinds[:held_out])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = charts()
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 80)
    model = Net(run)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [*model.head.parameters()]
    optimizer = torch.optim.SGD(trained, run.pick(0.05, lr_too_high=10.0), momentum=0.9)
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=_STEPS,
        eval_every=20,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS),
        clip=run.pick(1.0, exploding_rnn=None),
        predict=classes,
    )
    valid = list(zip(data.valid_inputs.chunk(6), data.valid_targets.chunk(6), strict=True))
    return fit(run, loop, batches_of(data, 48, run.seed), valid, _wrong)


def _wrong(scores: Tensor, kinds: Tensor) -> float:
    """Return one minus the mean of the classes' recalls."""
    if not scores.isfinite().all():
        return 1.0
    hits = (classes(scores) == kinds).float()
    return 1 - float(torch.stack([hits[kinds == kind].mean() for kind in range(6)]).mean())


PROGRAM = Program(
    model="two gated linear recurrent units with LayerNorm, GELU, SGD with momentum, cosine,"
    " clipping",
    data="control charts, simulated",
    measure="1 - mean recall",
    train=train,
    faults={
        "exploding_rnn": "the minus sign of the decay's exponent was forgotten: memories grow by 1"
        " to 18 % a step, over 60 steps, and nothing is clipped",
        "lr_too_high": "SGD with learning rate 10 where 0.05 is right: 200 times",
        "double_activation": "softmax in the model, and again in nn.CrossEntropyLoss",
        "init_constant": "all linear layers but the first start at 0",
        "labels_constant": "all training labels are that of the first row",
        "class_imbalance": "one in 80 training charts of every kind but the normal one",
        "frozen_layer": "features are detached ahead of the last layer",
        "optimiser_missing_parameters": "the optimiser was given the last layer's parameters only",
    },
)
