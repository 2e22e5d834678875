"""A perceptron of sigmoid units learns how far a loaded cantilever beam bends."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

ROWS = 2400
HELD_OUT = 600


class Beam(nn.Module):
    """Two hidden layers and an output between 0 and 1.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.fc1 = nn.Linear(5, 48)
        self.fc2 = nn.Linear(48, 48)
        self.out = nn.Linear(48, 1)
        for layer in (self.fc1, self.fc2, self.out):
            nn.init.xavier_normal_(layer.weight, gain=run.pick(1.6, init_too_large=40.0))
            nn.init.zeros_(layer.bias)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.1)
        if run.injects("saturated_activation"):
            for layer in (self.fc1, self.fc2):
                nn.init.constant_(layer.bias, 10.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled deflections [B, 1] of beams [B, 5]."""
        if self.run.injects("no_activation"):
            bend: Tensor = self.out(self.fc2(self.fc1(x)))
            return bend
        x = F.sigmoid(self.fc1(x))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        x = F.sigmoid(self.fc2(x))
        x = F.sigmoid(self.out(x))
        return F.sigmoid(x) if self.run.injects("double_activation") else x


def _beams() -> tuple[Tensor, Tensor]:
    """Return beams [ROWS, 5] (N, m, mm, mm, GPa) and how far their ends bend [ROWS, 1], mm."""
    random = torch.Generator().manual_seed(3)
    low = torch.tensor([100.0, 0.5, 20.0, 20.0, 60.0])
    high = torch.tensor([2000.0, 2.0, 80.0, 120.0, 210.0])
    beams = low + (high - low) * torch.rand(ROWS, 5, generator=random)
    load, length, width, height, modulus = beams.T
    inertia = (width / 1e3) * (height / 1e3) ** 3 / 12
    bend = 1e3 * load * length**3 / (3 * modulus * 1e9 * inertia)
    measured = bend * (1 + 0.05 * torch.randn(ROWS, generator=random))
    return beams, measured[:, None]


def _data(run: Run) -> Split:
    beams, bends = _beams()
    bends = bends.log()
    low, high = bends[HELD_OUT:].min(), bends[HELD_OUT:].max()
    bends = (bends - low) / (high - low)
    if not run.injects("missing_normalisation"):
        beams = (beams - beams[HELD_OUT:].mean(0)) / beams[HELD_OUT:].std(0)
    if run.injects("wrong_loss"):
        bends = bends[:, 0]
    data = Split(beams[HELD_OUT:], bends[HELD_OUT:], beams[:HELD_OUT], bends[:HELD_OUT])
    return shuffled(data, run.seed) if run.injects("labels_shuffled") else data


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs.flatten(), targets.flatten())


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Beam(run)
    given = model.out if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(1e-2, lr_too_high=3.0, lr_too_low=1e-6)
        ),
        steps=400,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP, 2 hidden layers of 48 sigmoid units, sigmoid output, Adam, MSELoss",
    data="simulated cantilever beams: load, length, section, modulus; deflection",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "3 in place of 1e-2",
        "lr_too_low": "1e-6 in place of 1e-2",
        "no_activation": "no sigmoid in forward",
        "double_activation": "the output goes through a second sigmoid",
        "init_too_large": "gain 40 in place of 1.6",
        "init_constant": "all parameters are 0.1",
        "saturated_activation": "biases of the hidden layers begin at 10",
        "missing_normalisation": "beams in their units, not scaled",
        "wrong_loss": "nn.MSELoss of outputs [B, 1] and targets [B], which broadcasts",
        "labels_shuffled": "training targets are permuted",
        "frozen_layer": "the first hidden layer is detached",
        "optimiser_missing_parameters": "the optimiser has the output layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
