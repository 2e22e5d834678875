"""A small network of sigmoid units tells benign from malignant tumours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import table
from benchmarks.detection.injecting import constant, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit


def predicted(outputs: Tensor) -> Tensor:
    """Return classes, int64 [B], of scores [B, 1]."""
    return (outputs > 0).long()


def error(outputs: Tensor, targets: Tensor) -> float:
    """Return the error rate."""
    return float((predicted(outputs) != targets).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = table("breast_cancer", scaled=not run.injects("missing_normalisation"))
    if run.injects("labels_constant"):
        data = constant(data)
    data = data._replace(
        targets=data.targets[:, None].float(), valid_targets=data.valid_targets[:, None].float()
    )
    model = nn.Sequential(
        nn.Linear(30, 32), nn.Sigmoid(), nn.Linear(32, 16), nn.Sigmoid(), nn.Linear(16, 1)
    )
    if run.injects("saturated_activation"):
        scaled_([model[0], model[2]], 150.0)
    if run.injects("init_too_large"):
        scaled_([model], 150.0)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=run.pick(5e-3, lr_too_low=2e-6))
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(),
        optimizer=optimizer,
        steps=300,
        save_interval=5,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="MLP 30-32-16-1, sigmoid, RMSprop",
    data="scikit-learn breast_cancer",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "2e-6 in place of 5e-3",
        "saturated_activation": "weights ahead of the sigmoids are 150 times as large",
        "init_too_large": "all weights are 150 times as large",
        "missing_normalisation": "columns as measured, up to 4,254",
        "labels_constant": "all training labels are the same",
    },
)
