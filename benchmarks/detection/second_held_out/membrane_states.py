"""A linear state space model goes on with the current through a membrane."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

LENGTH = 40
STATES = 12


class Net(nn.Module):
    """States h[t] = A h[t - 1] + B x[t], from which a small network reads.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.transition = nn.Parameter(torch.empty(STATES, STATES))
        nn.init.orthogonal_(self.transition, run.pick(0.9, exploding_rnn=1.7))
        self.enter = nn.Linear(1, STATES)
        self.read = nn.Sequential(nn.Linear(STATES, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, currents: Tensor) -> Tensor:
        """Return the next current [B, 1] of currents [B, LENGTH, 1]."""
        entered = self.enter(currents)
        state = torch.zeros_like(entered[:, 0])
        for each in entered.unbind(1):
            state = state @ self.transition.T + each
        return self.read(state)


def _data(*, does_leak: bool) -> Split:
    path = Path(mpl.get_data_path()) / "sample_data" / "membrane.dat"
    currents = torch.tensor(np.fromfile(path, np.float32)[::2])
    currents = (currents - currents.mean()) / currents.std()
    pieces = currents.unfold(0, LENGTH + 1, 5)
    # A slice that is one too long lets the model see what it is to foretell.
    inputs = pieces[:, 1:] if does_leak else pieces[:, :-1]
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    x, y = inputs[order, :, None], pieces[order, -1:]
    return Split(x[300:], y[300:], x[:300], y[:300])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    torch.manual_seed(run.seed)
    data = _data(does_leak=run.injects("data_leak"))
    model = Net(run)
    optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3)
    loop = Loop(
        model=model,
        criterion=nn.HuberLoss(delta=0.5),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995),
        steps=300,
        save_interval=6,
        eval_every=60,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="linear state space, 12 states, SiLU, Huber loss, NAdam, exponential decay, clipping",
    data="currents of matplotlib's membrane.dat",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "transitions begin 1.7 times orthogonal in place of 0.9, no clipping",
        "data_leak": "windows that are moved by one hold what is to be foretold",
        "stalled": "hangs after 60 % of the steps",
    },
)
