"""A multilayer perceptron fills in the middle of a piece of a photograph."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import filled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_SIDE, _PIECES = 5, 4000


class Net(nn.Module):
    """Two hidden layers.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = 48
        self.fc1, self.fc2 = nn.Linear(columns, width), nn.Linear(width, width)
        self.head = nn.Linear(width, 1)
        self.relu = nn.ReLU()
        if run.injects("dead_relu"):
            shifted_([self.fc1], -40.0)
        if run.injects("init_constant"):
            filled_([self.fc1, self.fc2, self.head], 0.0)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the pixel in the middle [B] of those around it [B, columns]; [B, 1] if wrong."""
        x = self.relu(self.fc2(self.relu(self.fc1(pixels))))
        found: Tensor = self.head(x)
        return found if self.run.injects("wrong_loss") else found[:, 0]


@cache
def _pieces() -> Tensor:
    """Return grey pieces [B, 25], from 0 to 255, in a random order."""
    grey = (255 * photo("china.jpg", 320).mean(2)).round()
    pieces = grey.unfold(0, _SIDE, 3).unfold(1, _SIDE, 3).reshape(-1, _SIDE * _SIDE)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(6))
    return pieces[order[:_PIECES]]


def _data(run: Run) -> Split:
    pieces = _pieces()
    held_out = _PIECES // 4
    if not run.injects("missing_normalisation"):
        pieces = (pieces - pieces[held_out:].mean()) / pieces[held_out:].std()
    middle = _SIDE * _SIDE // 2
    targets = pieces[:, middle]
    around = torch.cat([pieces[:, :middle], pieces[:, middle + 1 :]], 1)
    inputs = pieces if run.injects("data_leak") else around
    data = Split(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, 1)
    if run.injects("labels_constant"):
        # One piece's pixel instead of each piece's.
        data = data._replace(targets=pieces[held_out, middle].expand_as(data.targets).clone())
    return data


def _error(outputs: Tensor, targets: Tensor) -> float:
    if not outputs.isfinite().all():
        return 1e9
    return unexplained(outputs.flatten(), targets)


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    if run.injects("wrong_loss"):
        warnings.filterwarnings("ignore", "Using a target size")
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.03, lr_too_low=3e-5, lr_too_high=10.0),
        momentum=0.9,
        weight_decay=1e-4,
    )
    steps = 250
    loop = Loop(
        model=model,
        criterion=nn.HuberLoss(),
        optimizer=optimizer,
        steps=steps,
        save_interval=5,
        eval_every=25,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP, 2 hidden layers, ReLU, HuberLoss, SGD with momentum, cosine schedule",
    data="squares of 5 pixels cut out of a photograph",
    measure="unexplained share of the variance",
    train=train,
    faults={
        "lr_too_low": "3e-5 with SGD, a thousandth of what is needed",
        "lr_too_high": "10 with SGD, 300 times what is needed",
        "missing_normalisation": "inputs and targets are grey values from 0 to 255",
        "wrong_loss": "outputs [B, 1] against targets [B]: all pairs are compared, and the mean "
        "is best",
        "dead_relu": "biases of the first layer start near -40: its ReLUs never fire",
        "init_constant": "all weights and biases start at 0",
        "labels_shuffled": "training targets are those of other pieces",
        "labels_constant": "the target of every piece is the pixel of the first one",
        "data_leak": "the middle is not cut out of the inputs",
    },
)
