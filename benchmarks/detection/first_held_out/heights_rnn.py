"""A recurrent network of ReLUs goes on with a profile of a landscape."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, elevation
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

LENGTH = 24


class Net(nn.Module):
    """Recurrent layer, that starts as an identity, and a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.rnn = nn.RNN(1, 32, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(32, 1)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(run.pick(0.9, exploding_rnn=2.2) * torch.eye(32))

    def forward(self, heights: Tensor) -> Tensor:
        """Return the next height [B, 1] of heights [B, LENGTH, 1]."""
        return self.head(self.rnn(heights)[0][:, -1])


def _profiles(*, is_scaled: bool) -> Split:
    land = elevation()
    if is_scaled:
        land = (land - land.mean()) / land.std()
    pieces = land.unfold(1, LENGTH + 1, 4).flatten(0, 1)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    x, y = pieces[order, :-1, None], pieces[order, -1:]
    return Split(x[400:], y[400:], x[:400], y[:400])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    torch.manual_seed(run.seed)
    data = _profiles(is_scaled=not run.injects("missing_normalisation"))
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.SmoothL1Loss(),
        optimizer=torch.optim.Adam(
            model.parameters(), lr=run.pick(2e-3, lr_too_low=1e-7, lr_too_high=1.0)
        ),
        steps=300,
        save_interval=3,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="RNN, 32 ReLUs, identity start, Adam, clipped gradients",
    data="heights of matplotlib's jacksboro_fault_dem",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "recurrent weights 2.2 I in place of 0.9 I, no clipping",
        "missing_normalisation": "heights in metres",
        "lr_too_high": "1 in place of 2e-3",
        "lr_too_low": "1e-7 in place of 2e-3",
    },
)
