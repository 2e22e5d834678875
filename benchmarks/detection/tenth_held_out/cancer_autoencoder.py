"""An autoencoder squeezes measures of tumours through four numbers, to find odd ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import few, filled_, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

STEPS = 400


class Autoencoder(nn.Module):
    """Two layers down to a code of tanh units, and two up.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.down1, self.down2 = nn.Linear(30, 24), nn.Linear(24, 5)
        self.up1, self.up2 = nn.Linear(5, 24), nn.Linear(24, 30)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.tanh = nn.Tanh()
        if run.injects("dead_relu"):
            shifted_([self.up1], -10.0)
        if run.injects("saturated_activation"):
            scaled_([self.down2], 200.0)
        if run.injects("init_constant"):
            filled_([self.down2, self.up1], 0.0)

    def encode(self, rows: Tensor) -> Tensor:
        """Return codes [B, 5] of rows [B, 30]."""
        code: Tensor = self.tanh(self.down2(self.relu1(self.down1(rows))))
        return code

    def forward(self, rows: Tensor) -> Tensor:
        """Return what rows [B, 30] look like after the code."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                code = self.encode(rows)
        else:
            code = self.encode(rows)
        again: Tensor = self.up2(self.relu2(self.up1(code)))
        return again


def _data(run: Run) -> Split:
    data = table("breast_cancer", scaled=not run.injects("missing_normalisation"))
    if not run.injects("missing_normalisation"):
        data = data._replace(
            inputs=data.inputs.clamp(-4, 4), valid_inputs=data.valid_inputs.clamp(-4, 4)
        )
    data = data._replace(targets=data.inputs, valid_targets=data.valid_inputs)
    if run.injects("labels_shuffled"):
        data = shuffled(data, 3)
    if run.injects("overfit"):
        data = few(data, 10)
    return data


def _criterion(run: Run) -> nn.Module:
    return nn.BCEWithLogitsLoss() if run.injects("wrong_loss") else nn.MSELoss()


def _error(again: Tensor, rows: Tensor) -> float:
    """Return the mean over columns of the share of variance that is not explained."""
    return float(((again - rows).square().mean(0) / rows.var(0, correction=0)).mean())


def train(run: Run) -> float:
    """Train once; return the mean share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Autoencoder(run)
    given = [*model.parameters()]
    if run.injects("optimiser_missing_parameters"):
        given = [*model.down1.parameters(), *model.down2.parameters()]
    optimizer = torch.optim.Adam(given, lr=run.pick(6e-3, lr_too_high=3.0))
    loop = Loop(
        model=model,
        criterion=_criterion(run),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
        save_interval=8,
        eval_every=40,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _error)


PROGRAM = Program(
    model="autoencoder 30-24-5-24-30, ReLU, tanh at the code, Adam, cosine schedule",
    data="scikit-learn breast_cancer, columns cut at four standard deviations",
    measure="share of variance that is not explained, mean over columns",
    train=train,
    faults={
        "missing_normalisation": "columns as measured, from 0.001 to 4,254",
        "labels_shuffled": "rows to be rebuilt are those of another loader, in another order",
        "overfit": "10 rows for training",
        "wrong_loss": "BCEWithLogitsLoss, from a recipe for black and white images: columns are of "
        "mean 0, and no probabilities",
        "optimiser_missing_parameters": "the optimiser was given the encoder only",
        "frozen_layer": "the encoder runs under no_grad, at its random weights",
        "dead_relu": "biases ahead of the decoder's ReLUs start at -10: none ever fires",
        "saturated_activation": "weights ahead of the code are 200 times as large: it is -1 or 1",
        "init_constant": "layers on both sides of the code start at zero",
        "lr_too_high": "3.0 in place of 6e-3",
    },
)
