"""A perceptron with tanh units tells the arms of three spirals apart, as in CS231n's notes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, filled_, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

ARMS = 3
HIDDEN = 64


class SquaredDistance(nn.Module):
    """The loss that does not fit: the number of an arm is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus numbers of arms [B]."""
        return (outputs[:, 0] - labels.float()).square().mean()


def spirals(run: Run) -> Split:
    """Return places [B, 2], about from -1 to 1, and the numbers of their arms."""
    random = torch.Generator().manual_seed(12)
    count = 2600
    label = torch.randint(ARMS, (count,), generator=random)
    radius = torch.rand(count, generator=random)
    noise = 0.4 * torch.randn(count, generator=random)
    angle = 4.5 * radius + 2 * math.pi * label / ARMS + noise
    places = radius[:, None] * torch.stack([angle.sin(), angle.cos()], 1)
    if run.injects("missing_normalisation"):
        places = 400 + 400 * places
    data = Split(places[:2000], label[:2000], places[2000:], label[2000:])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    return constant(data) if run.injects("labels_constant") else data


def build(run: Run) -> nn.Sequential:
    """Return the model: places [B, 2] to scores [B, 3]."""
    units = nn.Identity if run.injects("no_activation") else nn.Tanh
    model = nn.Sequential(
        nn.Linear(2, HIDDEN),
        units(),
        nn.Linear(HIDDEN, HIDDEN),
        units(),
        nn.Linear(HIDDEN, run.pick(ARMS, wrong_loss=1)),
    )
    if run.injects("init_constant"):
        filled_([model], 0.0)
    return model


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = spirals(run)
    model = build(run)
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, ARMS - 1).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if is_distance:
            return float((predicted(outputs) != labels).float().mean())
        return error_rate(outputs, labels)

    optimizer = torch.optim.AdamW(
        model[4:].parameters()
        if run.injects("optimiser_missing_parameters")
        else model.parameters(),
        lr=run.pick(1e-2, lr_too_high=10.0, lr_too_low=1e-6),
    )
    loop = Loop(
        model=model,
        criterion=SquaredDistance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=400,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400),
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 100, run.seed), valid, error)


PROGRAM = Program(
    model="MLP 2-64-64-3, tanh, AdamW, cosine",
    data="three spirals, simulated",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "10 in place of 1e-2",
        "lr_too_low": "1e-6 in place of 1e-2",
        "no_activation": "linear layers follow each other without tanh",
        "init_constant": "all weights and biases are zero",
        "missing_normalisation": "places in pixels, 0 to 800",
        "wrong_loss": "squared distance between one output and the number of the arm",
        "labels_shuffled": "labels are shuffled apart from the places",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 rows of two of the arms",
        "optimiser_missing_parameters": "only the last layer's parameters are given to AdamW",
        "stalled": "hangs after 60 % of the steps",
    },
)
