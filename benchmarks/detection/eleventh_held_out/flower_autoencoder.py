"""An autoencoder makes pieces of a photograph smaller and draws them again."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, patches
from benchmarks.detection.injecting import few, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_SIDE, _PIECES, _CODE, _WIDTH = 6, 2000, 16, 64


class Net(nn.Module):
    """An encoder of two layers, a decoder of two layers, colours from 0 to 1.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        size = 3 * _SIDE * _SIDE
        code = run.pick(_CODE, overfit=2 * _CODE)
        self.encoder = nn.Sequential(nn.Linear(size, _WIDTH), nn.ELU(), nn.Linear(_WIDTH, code))
        self.decoder = nn.Sequential(nn.Linear(code, _WIDTH), nn.ELU(), nn.Linear(_WIDTH, size))
        if run.injects("saturated_activation"):
            shifted_([self.decoder[2]], 12.0)
        if run.injects("init_too_large"):
            for layer in (*self.encoder, *self.decoder):
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, std=3.0)

    def forward(self, pieces: Tensor) -> Tensor:
        """Return pieces [B, 108] of pieces."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                code = self.encoder(pieces)
        else:
            code = self.encoder(pieces)
        drawn = torch.sigmoid(self.decoder(code))
        return torch.sigmoid(drawn) if self.run.injects("double_activation") else drawn


class Loss(nn.Module):
    """Mean square of colours.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, drawn: Tensor, pieces: Tensor) -> Tensor:
        """Return the loss of drawn pieces [B, 108] and pieces."""
        if self.run.injects("wrong_loss"):
            return functional.cross_entropy(drawn, pieces)
        return functional.mse_loss(drawn, pieces)


@cache
def _pieces() -> Tensor:
    """Return pieces [B, 108] from 0 to 1."""
    return patches("flower.jpg", _SIDE, _PIECES, 7).flatten(1)


def _data(run: Run) -> Split:
    pieces = _pieces()
    if run.injects("missing_normalisation"):
        pieces = (255 * pieces).round()
    held_out = _PIECES // 5
    train, valid = pieces[held_out:], pieces[:held_out]
    data = Split(train, train, valid, valid)
    if run.injects("labels_constant"):
        data = data._replace(targets=train[:1].expand_as(train).clone())
    if run.injects("overfit"):
        data = few(data, 10)
    return data


def _error(drawn: Tensor, pieces: Tensor) -> float:
    """Return the share of the variance around the mean piece that is lost."""
    if not drawn.isfinite().all():
        return 1e9
    return float((drawn - pieces).square().mean() / (pieces - pieces.mean(0)).square().mean())


def train(run: Run) -> float:
    """Train once; return the share of the variance that is lost."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=torch.optim.Adam(
            model.parameters(), lr=run.pick(3e-3, lr_too_low=1e-5, lr_too_high=1.0)
        ),
        steps=300,
        save_interval=6,
        eval_every=30,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 50, run.seed), valid, _error)


PROGRAM = Program(
    model="autoencoder, 4 layers, ELU, sigmoid, functional mean square, Adam",
    data="pieces of a photograph of a flower, 6 x 6 pixels",
    measure="share of the variance that is lost",
    train=train,
    faults={
        "lr_too_low": "1e-5 with Adam, a 300th of what is needed",
        "lr_too_high": "1 with Adam, 300 times what is needed",
        "missing_normalisation": "colours from 0 to 255 for a sigmoid that ends at 1",
        "double_activation": "a second sigmoid of what the first one returns: no colour is below "
        "0.5",
        "wrong_loss": "cross entropy of colours, as if the 108 numbers were classes",
        "labels_constant": "the target of every piece is the first one",
        "frozen_layer": "the encoder is within torch.no_grad",
        "init_too_large": "weights are drawn with a standard deviation of 3",
        "saturated_activation": "biases ahead of the sigmoid start near 12, where it is flat",
        "overfit": "10 pieces, a code of twice the size",
        "stalled": "hangs after 60 % of the steps",
    },
)
