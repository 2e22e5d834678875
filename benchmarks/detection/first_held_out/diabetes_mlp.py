"""A network with layer normalisation and dropout predicts the progression of diabetes."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.detection.data import table
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = table("diabetes")
    targets, valid_targets = data.targets[:, None], data.valid_targets[:, None]
    if not run.injects("missing_normalisation"):
        mean, std = targets.mean(), targets.std()
        targets, valid_targets = (targets - mean) / std, (valid_targets - mean) / std
    data = data._replace(targets=targets, valid_targets=valid_targets)
    if run.injects("overfit"):
        data = few(data, 100)
    width = run.pick(16, overfit=128)
    dropout = run.pick(0.3, overfit=0.0)
    model = nn.Sequential(
        nn.Linear(10, width),
        nn.LayerNorm(width),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(width, 1),
    )
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=run.pick(3e-3, lr_too_high=2.0, lr_too_low=1e-6),
        weight_decay=run.pick(0.1, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=nn.SmoothL1Loss(),
        optimizer=optimizer,
        steps=200,
        save_interval=2,
        eval_every=20,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP 10-16-16-1, LayerNorm, GELU, dropout, AdamW",
    data="scikit-learn diabetes",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "2 in place of 3e-3",
        "lr_too_low": "1e-6 in place of 3e-3",
        "overfit": "100 rows, 128 units, no dropout, no weight decay",
        "missing_normalisation": "targets as measured, 25 to 346",
    },
)
