"""A recurrent autoencoder packs images, row after row, into a few numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, filled_, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE = 8
BRIGHTEST = 16.0
UNITS = 40
CODE = 12


class Autoencoder(nn.Module):
    """GRU that reads, code, GRU that writes.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder: nn.RNNBase = nn.GRU(SIDE, UNITS, batch_first=True)
        self.to_code = nn.Linear(UNITS, CODE)
        self.decoder: nn.RNNBase = nn.GRU(CODE, UNITS, batch_first=True)
        if run.injects("exploding_rnn"):
            self.encoder = nn.RNN(SIDE, UNITS, nonlinearity="relu", batch_first=True)
            self.decoder = nn.RNN(CODE, UNITS, nonlinearity="relu", batch_first=True)
            with torch.no_grad():
                self.encoder.all_weights[0][1].copy_(3.0 * torch.eye(UNITS))
                self.decoder.all_weights[0][1].copy_(3.0 * torch.eye(UNITS))
        self.to_row = nn.Linear(UNITS, SIDE)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 20.0)

    def forward(self, rows: Tensor) -> Tensor:
        """Return images [B, 8, 8] that are like images [B, 8, 8]."""
        states, _ = self.encoder(rows)
        code = self.to_code(states[:, -1])
        if self.run.injects("frozen_layer"):
            code = code.detach()
        states, _ = self.decoder(code[:, None].expand(-1, SIDE, -1))
        images: Tensor = self.to_row(states)
        if self.run.injects("double_activation"):
            return torch.relu(torch.tanh(images))
        return images


def dataset(run: Run) -> Split:
    """Return images [B, 8, 8] as inputs and as targets."""
    data = digits(scaled=False)
    images = data.inputs.view(-1, SIDE, SIDE)
    valid = data.valid_inputs.view(-1, SIDE, SIDE)
    if run.injects("missing_normalisation"):
        images, valid = images * 255 / BRIGHTEST, valid * 255 / BRIGHTEST
    else:
        images, valid = images / 8 - 1, valid / 8 - 1
    data = Split(images, images, valid, valid)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 24) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Autoencoder(run)
    if run.injects("optimiser_missing_parameters"):
        parameters = [*model.encoder.parameters(), *model.to_code.parameters()]
    else:
        parameters = list(model.parameters())
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=torch.optim.Adam(parameters, lr=run.pick(8e-3, lr_too_high=1.0, lr_too_low=1e-6)),
        steps=220,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 225), torch.split(data.valid_targets, 225), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="autoencoder of two GRUs, code of 12, Adam, clipped gradients",
    data="scikit-learn digits, row by row",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "RNNs with ReLU in place of GRUs, recurrent weights 3 I, no clipping",
        "lr_too_high": "1 in place of 8e-3",
        "lr_too_low": "1e-6 in place of 8e-3",
        "init_constant": "all weights and biases are zero",
        "init_too_large": "all weights are 20 times as large",
        "double_activation": "tanh and ReLU on the outputs, though pixels go from -1 to 1",
        "missing_normalisation": "pixels from 0 to 255, as inputs and as targets",
        "labels_shuffled": "images to restore are shuffled apart from those that are read",
        "labels_constant": "every image to restore is the first one",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "the decoder's parameters are not given to Adam",
        "overfit": "24 images",
        "stalled": "hangs after 60 % of the steps",
    },
)
