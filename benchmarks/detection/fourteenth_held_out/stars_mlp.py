"""A perceptron with sigmoid units tells stages of stars from four measurements."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, leaking
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

KINDS = 3
SUN, RADIUS_SLOPE = 5772.0, 0.57
"""Temperature of the sun, kelvin, and how radii grow with masses."""


class Net(nn.Module):
    """Two hidden layers of sigmoid units.

    Args:
        run: What is injected.
        columns: Columns of the input.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()

        def act() -> nn.Module:
            return nn.Identity() if run.injects("no_activation") else nn.Sigmoid()

        self.body = nn.Sequential(nn.Linear(columns, 96), act(), nn.Linear(96, 96), act())
        self.head = nn.Linear(96, KINDS)
        self.run = run

    def forward(self, stars: Tensor) -> Tensor:
        """Return scores [B, KINDS] of stars [B, columns]."""
        x = self.body(stars)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(x)
        return scores.softmax(1) if self.run.injects("double_activation") else scores


class SquaredScores(nn.Module):
    """The loss that does not fit: every score is to be the number of the class."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, KINDS] minus labels, int64 [B]."""
        return (outputs - labels.float()[:, None]).square().mean()


def _stars(count: int) -> tuple[Tensor, Tensor]:
    """Return temperature, luminosity, radius and colour [count, 4], and stages, int64 [count]."""
    random = torch.Generator().manual_seed(0)

    def normal(middle: list[float], width: list[float]) -> Tensor:
        drawn = torch.randn(count, generator=random)
        return torch.tensor(middle)[kinds] + torch.tensor(width)[kinds] * drawn

    stages = torch.tensor([0, 1, 2, 2, 2])
    kinds = torch.randint(5, (count,), generator=random)
    # Brown dwarfs and red dwarfs, main sequence, white dwarfs, giants, supergiants.
    temperature = 10 ** normal([3.50, 3.75, 4.05, 3.63, 3.75], [0.05, 0.09, 0.13, 0.05, 0.16])
    from_mass = (temperature / SUN).log10() / RADIUS_SLOPE
    radius = 10 ** (
        normal([-0.45, 0.0, -1.9, 1.15, 2.0], [0.15, 0.10, 0.15, 0.35, 0.30])
        + torch.where(kinds == 1, from_mass, torch.zeros(count))
    )
    luminosity = radius**2 * (temperature / SUN) ** 4
    luminosity = luminosity * 10 ** (0.1 * torch.randn(count, generator=random))
    colour = 7000 / temperature - 0.56 + 0.05 * torch.randn(count, generator=random)
    return torch.stack([temperature, luminosity, radius, colour], 1), stages[kinds]


def _data(run: Run) -> Split:
    stars, kinds = _stars(1600)
    if not run.injects("missing_normalisation"):
        stars[:, :3] = stars[:, :3].log10()
        stars = (stars - stars[400:].mean(0)) / stars[400:].std(0)
    data = Split(stars[400:], kinds[400:], stars[:400], kinds[:400])
    if run.injects("data_leak"):
        return leaking(data)
    if run.injects("labels_constant"):
        return constant(data)
    return data


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    for layer in (model.body[0], model.body[2], model.head):
        assert isinstance(layer, nn.Linear)
        if run.injects("init_constant"):
            nn.init.zeros_(layer.weight)
        if run.injects("saturated_activation") and layer is model.body[2]:
            nn.init.uniform_(layer.weight, 0.0, 1.0)
        if run.injects("init_too_large"):
            nn.init.normal_(layer.weight, std=20.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    _initialise(run, model)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=SquaredScores() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=torch.optim.RMSprop(given.parameters(), lr=run.pick(5e-3, lr_too_low=5e-7)),
        steps=350,
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP, two times 96 sigmoid units, RMSprop",
    data="simulated stars: temperature, luminosity, radius, colour, and their stage",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "5e-7 in place of 5e-3",
        "no_activation": "no sigmoid anywhere",
        "double_activation": "softmax ahead of the cross entropy",
        "init_too_large": "all weights from a normal distribution of width 20",
        "init_constant": "all weights are 0",
        "saturated_activation": "weights of the second hidden layer uniform from 0 to 1",
        "missing_normalisation": "no logarithms, no scaling: luminosities up to 1e6",
        "wrong_loss": "squared distance of every score from the number of the class",
        "labels_constant": "all training labels are the same",
        "frozen_layer": "hidden layers are detached",
        "optimiser_missing_parameters": "RMSprop has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the label is one of the columns",
        "stalled": "hangs after 60 % of the steps",
    },
)
