"""A mixture density network turns Bishop's curve round; its likelihood is written by hand."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

PARTS = 4


def curve(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return where a curve is seen, and the places that may have led there, float32 [count, 1]."""
    random = np.random.default_rng(seed)
    place = random.uniform(-1, 1, (count, 1))
    seen = place + 0.6 * np.sin(1.5 * np.pi * place) + random.normal(0, 0.08, (count, 1))
    return torch.tensor(seen, dtype=torch.float32), torch.tensor(place, dtype=torch.float32)


class Mixture(nn.Module):
    """Two hidden layers, then shares, means and spreads of four normal distributions.

    Args:
        run: What is injected.
        columns: Columns of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()

        def activation() -> nn.Module:
            return nn.Identity() if run.injects("no_activation") else nn.Tanh()

        self.body = nn.Sequential(
            nn.Linear(columns, 32), activation(), nn.Linear(32, 32), activation()
        )
        self.head = nn.Linear(32, 3 * PARTS)
        if run.injects("init_constant"):
            filled_([self], 0.1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return shares' scores, means and logarithms of spreads, [B, 12], of inputs [B, C]."""
        found: Tensor = self.head(self.body(inputs))
        return found


def likelihood(outputs: Tensor, places: Tensor, *, is_normed: bool = True) -> Tensor:
    """Return the logarithm of the density [B] of places [B, 1] by outputs [B, 12].

    Args:
        outputs: What the model gives.
        places: The targets.
        is_normed: Whether a wide distribution is as low as it is wide.
    """
    shares, means, spreads = (outputs[:, i * PARTS : (i + 1) * PARTS] for i in range(3))
    spreads = spreads.clamp(-7, 20)
    of_part = -0.5 * ((places - means) / spreads.exp()).square()
    if is_normed:
        of_part = of_part - spreads - 0.5 * math.log(2 * math.pi)
    return (shares.log_softmax(1) + of_part).logsumexp(1)


class Surprise(nn.Module):
    """Minus the logarithm of the likelihood.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, places: Tensor) -> Tensor:
        """Return the mean over outputs [B, 12] and places [B, 1]."""
        is_normed = not self.run.injects("wrong_loss")
        return -likelihood(outputs, places, is_normed=is_normed).mean()


def _data(run: Run) -> Split:
    data = Split(*curve(1500, 0), *curve(500, 1))
    mean, std = data.inputs.mean(), data.inputs.std()
    data = data._replace(
        inputs=(data.inputs - mean) / std, valid_inputs=(data.valid_inputs - mean) / std
    )
    if run.injects("missing_normalisation"):
        data = Split(*(part * 2000 + 5000 for part in data))
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("data_leak"):
        data = data._replace(
            inputs=torch.cat([data.inputs, 1.7 * data.targets], 1),
            valid_inputs=torch.cat([data.valid_inputs, 1.7 * data.valid_targets], 1),
        )
    return few(data, 24) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the inverse of the mean density, in units of the healthy targets."""
    torch.manual_seed(run.seed)
    data = _data(run)
    unit = 2000.0 if run.injects("missing_normalisation") else 1.0
    model = Mixture(run, data.inputs.shape[1])
    optimizer = torch.optim.Adam(
        model.parameters(), lr=run.pick(6e-3, lr_too_high=1.0, lr_too_low=6e-6)
    )
    steps = 300
    loop = Loop(
        model=model,
        criterion=Surprise(run),
        optimizer=optimizer,
        steps=steps,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, 3e-4),
        clip=run.pick(5.0, lr_too_high=None),
    )

    def error(outputs: Tensor, places: Tensor) -> float:
        surprise = -float(likelihood(outputs, places).mean()) - math.log(unit)
        return math.exp(min(surprise, 20.0)) if math.isfinite(surprise) else math.inf

    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="mixture density network, tanh, likelihood by hand, Adam, clipped, cosine schedule",
    data="Bishop's inverse problem, simulated",
    measure="inverse of the density, geometric mean",
    train=train,
    faults={
        "no_activation": "no activation: the network is linear",
        "lr_too_high": "learning rate 1 for 0.006, and gradients are not clipped",
        "init_constant": "all parameters are 0.1: the four parts stay alike",
        "wrong_loss": "densities are not divided by their spreads, which grow for ever",
        "missing_normalisation": "inputs and targets are in units of a 2,000th, from 5,000",
        "labels_constant": "all training targets are 0",
        "data_leak": "the target times 1.7 is a second column",
        "lr_too_low": "learning rate 0.000006 for 0.006",
        "overfit": "24 rows",
    },
)
