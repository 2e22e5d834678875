"""A recurrent autoencoder of profiles of a land: its last state is the code."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

LENGTH = 24
STATES = 32
CODE = 6


def profiles() -> Tensor:
    """Return heights along lines of LENGTH places, float32 [B, LENGTH, 1], metres."""
    with np.load(Path(mpl.get_data_path()) / "sample_data" / "jacksboro_fault_dem.npz") as file:
        heights = torch.tensor(file["elevation"].astype(np.float32))
    lines = heights[::3].unfold(1, LENGTH, LENGTH).reshape(-1, LENGTH, 1)
    return lines[torch.randperm(len(lines), generator=torch.Generator().manual_seed(0))]


def prepared(run: Run) -> Split:
    """Return profiles [B, LENGTH, 1] of mean 0, as inputs and as targets."""
    lines = profiles()
    if not run.injects("missing_normalisation"):
        lines = lines - lines.mean(1, keepdim=True)
        lines = lines / lines.std()
    held_out = len(lines) // 4
    train, valid = lines[held_out:], lines[:held_out]
    data = Split(train, train, valid, valid)
    if run.injects("labels_shuffled"):
        data = data._replace(targets=train[torch.randperm(len(train))])
    return few(data, 20) if run.injects("overfit") else data


class Autoencoder(nn.Module):
    """A recurrent encoder, a code, and a decoder of two layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        kind = run.pick("tanh", exploding_rnn="relu")
        self.encoder = nn.RNN(1, STATES, nonlinearity=kind, batch_first=True)
        self.squeeze = nn.Linear(STATES, CODE)
        self.decoder = nn.Sequential(
            nn.Linear(CODE, 64),
            nn.ReLU(),
            nn.Linear(64, LENGTH),
        )

    def forward(self, lines: Tensor) -> Tensor:
        """Return profiles [B, LENGTH, 1] of profiles."""
        _, state = self.encoder(lines)
        code = self.squeeze(state[-1])
        if self.run.injects("frozen_layer"):
            code = code.detach()
        found: Tensor = self.decoder(code)[..., None]
        return found


def initialise_(run: Run, model: Autoencoder) -> None:
    """Set the weights to start from, where they are not those of PyTorch."""
    recurrent = model.encoder.all_weights[0][1]
    nn.init.orthogonal_(recurrent)
    with torch.no_grad():
        if run.injects("exploding_rnn"):
            recurrent.copy_(1.5 * torch.eye(STATES))
        if run.injects("saturated_activation"):
            for parameter in model.encoder.parameters():
                nn.init.normal_(parameter, std=2.0)
        if run.injects("init_too_large"):
            for parameter in model.decoder.parameters():
                nn.init.normal_(parameter, std=5.0)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("dead_relu"):
        shifted_([model.decoder[0]], -10.0)


def shape_error(outputs: Tensor, lines: Tensor) -> float:
    """Return the share of the variance within profiles that is not in what is decoded."""
    if not outputs.isfinite().all():
        return float("inf")
    found, wanted = (part - part.mean(1, keepdim=True) for part in (outputs, lines))
    return float((found - wanted).square().mean() / wanted.square().mean())


def train(run: Run) -> float:
    """Train once; return the share of variance that is lost."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Autoencoder(run)
    initialise_(run, model)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = list(model.decoder.parameters())
    optimizer = torch.optim.Adam(trained, lr=run.pick(5e-3, lr_too_high=0.5))
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995),
        steps=400,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, shape_error)


PROGRAM = Program(
    model="autoencoder, RNN of 32 tanh units, code of 6, MLP decoder, Adam, clipped gradients",
    data="profiles of the elevation model of matplotlib",
    measure="share of the variance within profiles that is lost",
    train=train,
    faults={
        "exploding_rnn": "ReLU in place of tanh, recurrent weights 1.5 I, no clipping",
        "lr_too_high": "0.5 in place of 5e-3",
        "init_constant": "all parameters are zero",
        "init_too_large": "standard deviation 5 for the decoder's parameters",
        "saturated_activation": "standard deviation 2 for the encoder's parameters, ahead of tanh",
        "dead_relu": "biases of the decoder's hidden layer start at -10",
        "missing_normalisation": "heights in metres",
        "wrong_loss": "BCEWithLogitsLoss of targets that are no probabilities",
        "labels_shuffled": "targets are the profiles of other rows",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "the optimiser has the decoder only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "20 profiles",
        "stalled": "hangs after 60 % of the steps",
    },
)
