"""A recurrent cell, written by hand, foretells tomorrow's price of a share from twenty days.

Faults:
    exploding_rnn: the tanh of the cell was forgotten, and nothing is clipped.
    saturated_activation: all weights are drawn by `torch.randn` and not scaled.
    missing_normalisation: dollars and numbers of shares go in, and dollars are foretold.
    wrong_loss: outputs [B, 1] are compared with targets [B], each with each.
    fp16_overflow: float16 by hand, with a fixed loss scale, and nobody looks at gradients.
    data_leak: the window is one day too long, so that tomorrow's price is its last.
    stalled: the loader hangs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

DAYS = 20
UNITS = 32
TRAINED = 760
"""Days that windows for training end in; those for validation come later."""


class Net(nn.Module):
    """A recurrent cell of own make and a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        scale = run.pick(0.25, saturated_activation=4.0)
        self.of_input = nn.Parameter(torch.randn(5, UNITS) * scale)
        self.of_state = nn.Parameter(torch.randn(UNITS, UNITS) * scale)
        self.bias = nn.Parameter(torch.zeros(UNITS))
        self.tanh = run.pick(nn.Tanh(), exploding_rnn=nn.Identity())
        self.head = nn.Linear(UNITS, 1)

    def forward(self, days: Tensor) -> Tensor:
        """Return prices [B, 1] behind days [B, days, 5]."""
        state = days.new_zeros(len(days), UNITS)
        for day in days.unbind(1):
            state = self.tanh(day @ self.of_input + state @ self.of_state + self.bias)
        price: Tensor = self.head(state)
        return price


class EachWithEach(nn.Module):
    """The loss that does not fit: [B, 1] minus [B] is [B, B]."""

    def forward(self, prices: Tensor, targets: Tensor) -> Tensor:
        """Return the mean square of prices [B, 1] minus targets [B, 1] without their axis."""
        return (prices - targets.squeeze(1)).square().mean()


@cache
def _days() -> Tensor:
    path = Path(mpl.get_data_path()) / "sample_data" / "goog.npz"
    with np.load(path) as file:
        days = file["price_data"]
    columns = [days[name].astype(np.float64) for name in ("open", "high", "low", "volume", "close")]
    return torch.tensor(np.stack(columns, 1), dtype=torch.float32)


def _data(run: Run) -> Split:
    days = _days()
    if not run.injects("missing_normalisation"):
        days = (days - days[:TRAINED].mean(0)) / days[:TRAINED].std(0)
    windows = days.unfold(0, DAYS + 1, 1).transpose(1, 2)
    end = DAYS + 1 if run.injects("data_leak") else DAYS
    inputs, targets = windows[:, :end], windows[:, -1, -1:]
    first = TRAINED - DAYS
    return Split(inputs[:first], targets[:first], inputs[TRAINED:], targets[TRAINED:])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    epoch = len(data.inputs) // 32
    loop = Loop(
        model=model,
        criterion=run.pick(nn.MSELoss(), wrong_loss=EachWithEach()),
        optimizer=torch.optim.Adam(model.parameters(), lr=4e-3),
        steps=18 * epoch,
        eval_every=epoch,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="RNN, a cell of own make with 32 tanh units, Adam, clipped gradients",
    data="prices of a share on 1,047 days (matplotlib's goog.npz), the last quarter held out",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "the cell has no tanh, and nothing is clipped",
        "saturated_activation": "weights of the cell have a standard deviation of 4",
        "missing_normalisation": "columns and targets are as they were recorded",
        "wrong_loss": "outputs [B, 1] are compared with targets [B]",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the price to foretell is the last one of the inputs",
        "stalled": "hangs after 60 % of the steps",
    },
)
