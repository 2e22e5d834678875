"""An MLP of tanh units learns where the hand of a robot's arm is."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

ROWS, HELD_OUT, STEPS, WIDTH = 4000, 1000, 350, 48


@cache
def _poses() -> tuple[Tensor, Tensor]:
    """Return angles of four joints, degrees, and the hand, mm: float32 [ROWS, 4] and [ROWS, 3]."""
    random = np.random.default_rng(8)
    degrees = random.uniform((-90, 0, -90, -60), (90, 90, 45, 60), (ROWS, 4))
    base, *joints = np.radians(degrees).T
    reach, height, angle = np.zeros(ROWS), np.full(ROWS, 120.0), np.zeros(ROWS)
    for length, joint in zip((250.0, 210.0, 130.0), joints, strict=True):
        angle = angle + joint
        reach = reach + length * np.cos(angle)
        height = height + length * np.sin(angle)
    hand = np.stack([reach * np.cos(base), reach * np.sin(base), height], 1)
    hand += 5.0 * random.normal(size=hand.shape)
    return torch.tensor(degrees, dtype=torch.float32), torch.tensor(hand, dtype=torch.float32)


def _scaled(values: Tensor) -> Tensor:
    """Return columns [ROWS, columns] with mean 0 and variance 1 where they are trained on."""
    known = values[HELD_OUT:]
    return (values - known.mean(0)) / known.std(0)


def _data(run: Run) -> Split:
    angles, hand = _poses()
    hand = _scaled(hand)
    if not run.injects("missing_normalisation"):
        angles = _scaled(angles)
    if run.injects("data_leak"):
        seen = hand + 0.01 * torch.randn(hand.shape, generator=torch.Generator().manual_seed(1))
        angles = torch.cat([angles, seen], 1)
    data = Split(angles[HELD_OUT:], hand[HELD_OUT:], angles[:HELD_OUT], hand[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 24) if run.injects("overfit") else data


class Kinematics(nn.Module):
    """Two hidden layers.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        layers = [nn.Linear(columns, WIDTH), nn.Linear(WIDTH, WIDTH)]
        is_list = run.injects("optimiser_missing_parameters")
        self.hidden: list[nn.Linear] | nn.ModuleList = layers if is_list else nn.ModuleList(layers)
        self.act = nn.Identity() if run.injects("no_activation") else nn.Tanh()
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return places of the hand [B, 3] of inputs [B, columns]."""
        for layer in self.hidden:
            x = self.act(layer(x))
        if self.run.injects("frozen_layer"):
            x = torch.tensor(x.detach().numpy())
        places: Tensor = self.out(x)
        return places


@torch.no_grad()
def _initialise(run: Run, model: Kinematics) -> None:
    for layer in (*model.hidden, model.out):
        fan_in = layer.weight.shape[1]
        is_hidden = layer is not model.out
        if run.injects("init_constant"):
            nn.init.constant_(layer.weight, 0.1)
            nn.init.zeros_(layer.bias)
        if run.injects("init_too_large") and not is_hidden:
            nn.init.normal_(layer.weight, std=20.0)
        if run.injects("saturated_activation") and is_hidden:
            nn.init.normal_(layer.weight, std=fan_in**0.5)


class Distance(nn.Module):
    """The loss, as a function.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over outputs and targets [B, 3]."""
        if self.run.injects("wrong_loss"):
            return nn.functional.binary_cross_entropy_with_logits(outputs, targets)
        return nn.functional.mse_loss(outputs, targets)


def _unexplained(outputs: Tensor, targets: Tensor) -> float:
    """Return 1 - R2, the mean over columns, of outputs and targets [B, 3]."""
    return float(((outputs - targets).square().mean(0) / targets.var(0, correction=0)).mean())


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Kinematics(run, data.inputs.shape[1])
    _initialise(run, model)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.1, lr_too_high=8.0, lr_too_low=3e-6),
        momentum=0.9,
    )
    loop = Loop(
        model=model,
        criterion=Distance(run),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
        save_interval=7,
        eval_every=50,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _unexplained)


PROGRAM = Program(
    model="MLP 4-48-48-3, tanh, mean square, SGD with momentum, cosine schedule",
    data="simulated poses of a robot's arm",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "8 in place of 0.1",
        "lr_too_low": "3e-6 in place of 0.1",
        "no_activation": "no tanh between the layers",
        "init_too_large": "weights of the last layer from a normal distribution of width 20",
        "init_constant": "all weights are 0.1, all biases 0",
        "saturated_activation": "hidden weights grow with the root of inputs in place of shrinking",
        "missing_normalisation": "angles in degrees",
        "wrong_loss": "binary cross entropy with the places of the hand",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are those of the first row",
        "frozen_layer": "the last layer gets a new tensor, from numpy",
        "optimiser_missing_parameters": "hidden layers in a list of Python",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the hand as a camera sees it is among the inputs",
        "overfit": "24 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
