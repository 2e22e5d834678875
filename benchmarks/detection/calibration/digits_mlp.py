"""A multilayer perceptron classifies handwritten digits."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.detection.data import digits
from benchmarks.detection.injecting import filled_, shifted_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = with_fault(run, digits(), rows=60)
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
        run.pick(nn.LogSoftmax(dim=1), no_activation=nn.Identity()),
    )
    filled_(run, "init_constant", [model], 0.0)
    shifted_(run, "dead_relu", [model[0], model[2]], -15.0)
    trained = run.pick(model, optimiser_missing_parameters=model[0])
    rate = run.pick(0.05, lr_too_high=8.0, lr_too_low=1e-5)
    optimizer = torch.optim.SGD(trained.parameters(), rate, momentum=0.9)
    loop = Loop(model, nn.NLLLoss(), optimizer, 300, predict=classes)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation(), error_rate)
