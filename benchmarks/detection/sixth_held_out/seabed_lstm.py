"""An LSTM forecasts how the ground goes on along a line through sea and mountains."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_SEEN: Final = 20
_AHEAD: Final = 3
_HIDDEN: Final = 32


def lines(run: Run) -> Split:
    """Return pieces of lines, float32 [B, 20, 1], and how they go on, float32 [B, 3]."""
    path = Path(mpl.get_data_path()) / "sample_data" / "topobathy.npz"
    with np.load(path) as file:
        heights = torch.tensor(file["topo"])
    if not run.injects("missing_normalisation"):
        heights = (heights - heights.mean()) / heights.std()
    windows = heights.unfold(1, _SEEN + _AHEAD, 2)
    valid, train = windows[:23].flatten(0, 1), windows[23:].flatten(0, 1)
    targets = train[:, _SEEN:]
    if run.injects("labels_shuffled"):  # a join by a key that is not the line
        targets = targets.flip(0)
    return Split(train[:, :_SEEN, None], targets, valid[:, :_SEEN, None], valid[:, _SEEN:])


class Forecaster(nn.Module):
    """An LSTM and a linear layer on its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.recurrent: nn.RNNBase = nn.LSTM(1, _HIDDEN, batch_first=True)
        if run.injects("exploding_rnn"):  # "ReLUs train faster"
            self.recurrent = nn.RNN(1, _HIDDEN, nonlinearity="relu", batch_first=True)
            nn.init.normal_(self.recurrent.all_weights[0][1], std=2.5 / _HIDDEN**0.5)
        self.head = nn.Linear(_HIDDEN, _AHEAD)
        if run.injects("saturated_activation"):
            nn.init.constant_(self.recurrent.all_weights[0][2], -12.0)
        if run.injects("init_too_large"):
            for weights in self.parameters():
                nn.init.uniform_(weights, -30.0, 30.0)

    def forward(self, heights: Tensor) -> Tensor:
        """Return the next heights [B, 3] of heights [B, 20, 1]."""
        states, _ = self.recurrent(heights)
        ahead: Tensor = self.head(states[:, -1])
        return ahead


def train(run: Run) -> float:
    """Train once; return the share of the variance of heights that is not explained."""
    torch.manual_seed(run.seed)
    data = lines(run)
    if run.injects("overfit"):
        data = few(data, 12)
    model = Forecaster(run)
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=run.pick(5e-3, lr_too_low=5e-7)),
        steps=300,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 256), torch.split(data.valid_targets, 256), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="LSTM, 32 units, Adam, clipped gradients",
    data="heights around Vancouver Island that come with matplotlib",
    measure="1 - R2 of the next three heights",
    train=train,
    faults={
        "missing_normalisation": "heights in metres",
        "exploding_rnn": "a recurrent network of ReLUs with wide weights, and nothing is clipped",
        "saturated_activation": "gates and candidates start at a bias of -12",
        "init_too_large": "all parameters from -30 to 30",
        "labels_shuffled": "targets in reverse order of the rows",
        "lr_too_low": "a learning rate of 0.0000005",
        "overfit": "12 pieces of a line",
        "stalled": "hangs after 60 % of the steps",
    },
)
