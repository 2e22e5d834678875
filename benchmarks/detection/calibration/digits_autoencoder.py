"""An autoencoder squeezes handwritten digits into eight numbers."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.detection.data import digits
from benchmarks.detection.injecting import filled_, shifted_
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    data = digits(scaled=False)
    if not run.injects("missing_normalisation"):
        data = data.with_inputs(lambda pixels: pixels / 16)
    data = data._replace(targets=data.inputs, valid_targets=data.valid_inputs)
    model = nn.Sequential(
        nn.Linear(64, 48),
        nn.ReLU(),
        nn.Linear(48, 8),
        nn.Linear(8, 48),
        nn.ReLU(),
        nn.Linear(48, 64),
        run.pick(nn.Identity(), double_activation=nn.ReLU()),
        nn.Sigmoid(),
    )
    filled_(run, "init_constant", [model], 0.0)
    shifted_(run, "dead_relu", [model[0], model[3]], -10.0)
    shifted_(run, "saturated_activation", [model[5]], 40.0)
    trained = run.pick(model, optimiser_missing_parameters=model[3:])
    rate = run.pick(5e-3, lr_too_low=3e-6, lr_too_high=2.0)
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    loop = Loop(model, nn.MSELoss(), optimizer, 400)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation(), unexplained)
