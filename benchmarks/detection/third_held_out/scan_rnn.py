"""A recurrent network foretells the next point of a line through a scan of a head."""

from __future__ import annotations

import gzip
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

LENGTH = 12


class Net(nn.Module):
    """A recurrent cell, called once for each point, and a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.cell = nn.RNNCell(1, 32, nonlinearity=run.pick("tanh", exploding_rnn="relu"))
        self.head = nn.Linear(32, 1)
        nn.init.orthogonal_(self.cell.weight_hh, gain=run.pick(1.0, exploding_rnn=3.0))
        if run.injects("init_too_large"):
            scaled_([self], 15.0)
        if run.injects("saturated_activation"):
            nn.init.normal_(self.cell.weight_ih, std=5.0)
            nn.init.normal_(self.cell.weight_hh, std=5.0)

    def forward(self, points: Tensor) -> Tensor:
        """Return the next point [B, 1] of points [B, length, 1]."""
        state = points.new_zeros(len(points), 32)
        for point in points.unbind(1):
            state = self.cell(point, state)
        following: Tensor = self.head(state)
        return following


def _data(run: Run) -> Split:
    path = Path(mpl.get_data_path()) / "sample_data" / "s1045.ima.gz"
    with gzip.open(path) as file:
        scan = np.frombuffer(file.read(), np.uint16).reshape(256, 256).astype(np.float32)
    lines = torch.tensor(scan)
    if not run.injects("missing_normalisation"):
        lines = (lines - lines.mean()) / lines.std()
    pieces = lines.unfold(1, LENGTH + 1, 6)
    # A window that is one point too long has the answer at its end.
    end = LENGTH + 1 if run.injects("data_leak") else LENGTH
    train, valid = pieces[64:].flatten(0, 1), pieces[:64].flatten(0, 1)
    return Split(train[:, :end, None], train[:, -1:], valid[:, :end, None], valid[:, -1:])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    steps = 250
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995),
        steps=steps,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="RNN, a cell of 32 tanh units, orthogonal start, RMSprop, clipped gradients",
    data="lines of matplotlib's scan of a head (s1045.ima)",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "ReLU in place of tanh, orthogonal start times 3, no clipping",
        "missing_normalisation": "points are as they were measured",
        "init_too_large": "all weights are 15 times as large",
        "saturated_activation": "weights of the cell have a standard deviation of 5",
        "data_leak": "the point to foretell is the last one of the inputs",
        "stalled": "hangs after 60 % of the steps",
    },
)
