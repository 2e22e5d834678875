"""A network that normalises itself tells three vineyards apart, one bottle at a time."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.detection.data import table
from benchmarks.detection.injecting import constant, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = table("wine", scaled=not run.injects("missing_normalisation"))
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    model = nn.Sequential(
        nn.Linear(13, 16),
        nn.SELU(),
        nn.AlphaDropout(0.05),
        nn.Linear(16, 16),
        nn.SELU(),
        nn.AlphaDropout(0.05),
        nn.Linear(16, 3),
        run.pick(nn.LogSoftmax(dim=1), no_activation=nn.Identity()),
    )
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=run.pick(0.01, lr_too_high=1.0)),
        steps=400,
        save_interval=4,
        eval_every=100,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 1, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP 13-16-16-3, SELU, alpha dropout, SGD, batches of 1",
    data="scikit-learn wine",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 0.01",
        "no_activation": "LogSoftmax ahead of NLLLoss is missing",
        "missing_normalisation": "columns as measured, up to 1,680",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 40 rows of every class but one",
    },
)
