"""A multilayer perceptron tells handwritten digits apart."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.detection.data import digits
from benchmarks.detection.injecting import few, filled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = digits()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("overfit"):
        data = few(data, 60)
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
        run.pick(nn.LogSoftmax(dim=1), no_activation=nn.Identity()),
    )
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("dead_relu"):
        shifted_([model[0], model[2]], -15.0)
    optimizer = torch.optim.SGD(
        run.pick(model, optimiser_missing_parameters=model[0]).parameters(),
        lr=run.pick(0.05, lr_too_high=8.0, lr_too_low=1e-5),
        momentum=0.9,
    )
    loop = Loop(
        model=model, criterion=nn.NLLLoss(), optimizer=optimizer, steps=300, predict=classes
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP 64-64-32-10, ReLU, SGD with momentum",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "8 in place of 0.05",
        "lr_too_low": "1e-5 in place of 0.05",
        "no_activation": "LogSoftmax ahead of NLLLoss is missing",
        "init_constant": "all parameters are 0",
        "dead_relu": "biases of the hidden layers are 15 lower",
        "labels_shuffled": "training labels are permuted",
        "optimiser_missing_parameters": "the optimiser has the first layer only",
        "overfit": "60 rows for training",
    },
)
