"""A network tells which places of a map are mountains: one in ten, and worth as much as nine."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import mountains
from benchmarks.detection.injecting import filled_, imbalanced, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit


def predicted(outputs: Tensor) -> Tensor:
    """Return classes, int64 [B, 1], of scores [B, 1]."""
    return (outputs > 0).long()


def balanced(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean of both classes' error rates."""
    if not outputs.isfinite().all():
        return 1.0
    wrong = predicted(outputs) != targets
    return float((wrong[targets == 1].float().mean() + wrong[targets == 0].float().mean()) / 2)


def train(run: Run) -> float:
    """Train once; return the mean of both classes' error rates."""
    torch.manual_seed(run.seed)
    data = mountains()
    weight = 9.0
    if run.injects("class_imbalance"):
        data, weight = imbalanced(data, 60), 1.0
    data = data._replace(
        targets=data.targets[:, None].float(), valid_targets=data.valid_targets[:, None].float()
    )

    def activation() -> nn.Module:
        return nn.Identity() if run.injects("no_activation") else nn.ReLU()

    model = nn.Sequential(
        nn.Linear(2, 64),
        activation(),
        nn.Linear(64, 64),
        activation(),
        nn.Linear(64, 32),
        activation(),
        nn.Linear(32, 1),
    )
    if run.injects("init_constant"):
        filled_([model], 0.01)
    if run.injects("dead_relu"):
        shifted_([model[2], model[4]], -20.0)
    optimizer = torch.optim.Adamax(model.parameters(), lr=run.pick(1e-2, lr_too_low=1e-4))
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weight)),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.MultiStepLR(optimizer, [200, 300], 0.3),
        steps=400,
        save_interval=8,
        eval_every=80,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 128, run.seed), valid, balanced)


PROGRAM = Program(
    model="MLP 2-64-64-32-1, ReLU, weight 9 for the rare class, Adamax, steps in the rate",
    data="places and heights of matplotlib's topobathy",
    measure="mean of both classes' error rates",
    train=train,
    faults={
        "lr_too_low": "1e-4 in place of 1e-2",
        "no_activation": "no activation between the layers",
        "init_constant": "all parameters are 0.01",
        "dead_relu": "biases ahead of two layers of ReLUs are 20 lower",
        "class_imbalance": "one in 60 mountains, and no weight",
    },
)
