"""An autoencoder squeezes the thirty measures of a cell into five numbers.

Faults:
    init_constant: all parameters are set to 0.
    dead_relu: biases are set to -10, which was meant for the last layer.
    saturated_activation: weights ahead of the tanh are drawn with a deviation of 20.
    missing_normalisation: columns go in as they were measured.
    frozen_layer: the code is detached, to be looked at, and then used.
    optimiser_missing_parameters: the optimiser has the encoder only.
    overfit: 10 rows for training, no weight decay.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import few, filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

COLUMNS = 30
CODE = 5
BATCH = 32


class Autoencoder(nn.Module):
    """Two linear layers to a code, and two back.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        code = nn.Linear(20, CODE)
        self.encoder = nn.Sequential(nn.Linear(COLUMNS, 20), nn.ReLU(), code, nn.Tanh())
        self.decoder = nn.Sequential(nn.Linear(CODE, 20), nn.ReLU(), nn.Linear(20, COLUMNS))
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("saturated_activation"):
            nn.init.normal_(code.weight, std=20.0)
        for parameter in self.parameters():
            if run.injects("dead_relu") and parameter.dim() == 1:
                nn.init.constant_(parameter, -10.0)

    def forward(self, cells: Tensor) -> Tensor:
        """Return measures [B, COLUMNS] again."""
        code = self.encoder(cells)
        again: Tensor = self.decoder(code.detach() if self.run.injects("frozen_layer") else code)
        return again


def _data(run: Run) -> Split:
    data = table("breast_cancer", scaled=not run.injects("missing_normalisation"))
    data = data._replace(targets=data.inputs, valid_targets=data.valid_inputs)
    return few(data, 10) if run.injects("overfit") else data


def _error(again: Tensor, cells: Tensor) -> float:
    return float(((again - cells).square().mean(0) / cells.var(0, correction=0)).mean())


def train(run: Run) -> float:
    """Train once; return the share of variance that is lost, the mean over columns."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Autoencoder(run)
    part = run.pick(model, optimiser_missing_parameters=model.encoder)
    optimizer = torch.optim.Adam(
        part.parameters(), lr=5e-3, weight_decay=run.pick(1e-5, overfit=0.0)
    )
    epoch = 13
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 10 * epoch, 0.5),
        steps=30 * epoch,
        save_interval=10,
        eval_every=epoch,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, BATCH, run.seed), valid, _error)


PROGRAM = Program(
    model="autoencoder 30-20-5-20-30, ReLU, tanh code, Adam, steps of the learning rate",
    data="scikit-learn breast_cancer, without its labels",
    measure="1 - R2, mean over columns",
    train=train,
    faults={
        "init_constant": "all parameters are 0",
        "dead_relu": "all biases are -10",
        "saturated_activation": "weights ahead of the tanh have a standard deviation of 20",
        "missing_normalisation": "columns are as they were measured",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "the optimiser has the encoder only",
        "overfit": "10 rows for training, no weight decay",
    },
)
