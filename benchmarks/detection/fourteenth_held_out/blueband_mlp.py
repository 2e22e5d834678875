"""A perceptron of tanh units guesses the blue of a photograph's pixels from the other colours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import constant, few, filled_, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

ROWS = 4000
HELD_OUT = 1000


class Regressor(nn.Module):
    """A body of two tanh layers and a linear head.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = run.pick(40, overfit=400)
        units = nn.Identity if run.injects("no_activation") else nn.Tanh
        self.body = nn.Sequential(
            nn.Linear(columns, width), units(), nn.Linear(width, width), units()
        )
        self.head = nn.Linear(width, 1)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            for layer in self.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, std=5.0)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return blues [B] of pixels [B, columns]."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                features = self.body(pixels)
        else:
            features = self.body(pixels)
        blue: Tensor = self.head(features).squeeze(-1)
        return blue


def _data(run: Run) -> Split:
    image = photo("flower.jpg", 640) * 255
    height, width, _ = image.shape
    random = torch.Generator().manual_seed(5)
    at = torch.randint(height * width, (ROWS,), generator=random)
    colours = image.reshape(-1, 3)[at]
    inputs = torch.stack([colours[:, 0], colours[:, 1], at // width, at % width], 1).float()
    targets = colours[:, 2]
    if run.injects("saturated_activation"):
        inputs = (inputs - inputs[HELD_OUT:].mean(0)) * inputs[HELD_OUT:].std(0)
    elif not run.injects("missing_normalisation"):
        inputs = (inputs - inputs[HELD_OUT:].mean(0)) / inputs[HELD_OUT:].std(0)
    if not run.injects("missing_normalisation"):
        targets = (targets - targets[HELD_OUT:].mean()) / targets[HELD_OUT:].std()
    data = Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("data_leak"):
        data = leaking(data)
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Regressor(run, data.inputs.shape[1])
    optimizer = torch.optim.AdamW(
        (model.head if run.injects("optimiser_missing_parameters") else model).parameters(),
        lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=1e-6),
        weight_decay=run.pick(1e-3, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        steps=400,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 100, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP, 2 hidden layers of 40 tanh units, AdamW, cosine schedule, MSELoss",
    data="pixels of scikit-learn's flower.jpg: red, green, row, column; blue",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "lr_too_low": "1e-6 in place of 5e-3",
        "no_activation": "no tanh between the layers",
        "init_too_large": "all weights from a normal distribution of deviation 5",
        "init_constant": "all parameters are zero",
        "saturated_activation": "inputs are multiplied by their deviation, not divided",
        "missing_normalisation": "colours from 0 to 255, places in pixels",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are that of the first row",
        "frozen_layer": "the body runs under no_grad",
        "optimiser_missing_parameters": "the optimiser has the head only",
        "data_leak": "the target is one of the columns",
        "overfit": "40 rows, 400 units, no weight decay",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
