"""A recurrent network tells from a profile of heights whether the land goes on to rise."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_SEEN, _AHEAD, _WIDTH = 16, 2, 24


class Net(nn.Module):
    """A recurrent layer, and a score of its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        kind = "relu" if run.injects("exploding_rnn") else "tanh"
        width = run.pick(_WIDTH, overfit=2 * _WIDTH)
        self.rnn = nn.RNN(1, width, nonlinearity=kind, batch_first=True)
        self.drop = nn.Dropout(run.pick(0.1, overfit=0.0))
        self.head = nn.Linear(width, 1)
        with torch.no_grad():
            if run.injects("exploding_rnn"):
                for name, parameter in self.rnn.named_parameters():
                    if name.startswith("weight"):
                        parameter.normal_(0, 1)
            if run.injects("saturated_activation"):
                scaled_([self.rnn], 30.0)
            if run.injects("init_constant"):
                for parameter in self.parameters():
                    parameter.fill_(0.1)

    def forward(self, heights: Tensor) -> Tensor:
        """Return scores [B] of heights [B, steps]."""
        states, _ = self.rnn(heights[:, :, None])
        last = states[:, -1]
        scores: Tensor = self.head(self.drop(last)).squeeze(-1)
        if self.run.injects("double_activation"):
            scores = scores.sigmoid()
        return scores


@cache
def _profiles() -> tuple[Tensor, Tensor]:
    """Return heights [B, 16 + 2], metres, and whether the last is above the 16th."""
    path = Path(mpl.get_data_path()) / "sample_data" / "jacksboro_fault_dem.npz"
    with np.load(path) as file:
        land = torch.tensor(file["elevation"].astype(np.float32))
    pieces = land.unfold(1, _SEEN + _AHEAD, _AHEAD).reshape(-1, _SEEN + _AHEAD)
    pieces = pieces[pieces[:, -1] != pieces[:, _SEEN - 1]]
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(2))[:4000]
    return pieces[order], (pieces[order, -1] > pieces[order, _SEEN - 1]).float()


def _data(run: Run) -> Split:
    pieces, targets = _profiles()
    # The fault: the window ends with the place that is asked for.
    inputs = pieces[:, _AHEAD:] if run.injects("data_leak") else pieces[:, :_SEEN]
    held_out = len(inputs) // 4
    if not run.injects("missing_normalisation"):
        inputs = inputs - pieces[:, _SEEN - 1 : _SEEN]
        inputs = inputs / inputs[held_out:].std()
    data = Split(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.flip(0))
    if run.injects("labels_constant"):
        # Compared with itself.
        data = data._replace(targets=(data.inputs[:, -1] > data.inputs[:, -1]).float())
    if run.injects("overfit"):
        data = few(data, 32)
    return data


def _error(scores: Tensor, targets: Tensor) -> float:
    if not scores.isfinite().all():
        return 0.5
    return float(((scores > 0) != (targets > 0)).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.AdamW(
            model.parameters(),
            lr=run.pick(5e-3, lr_too_low=5e-6, lr_too_high=1.0),
            weight_decay=run.pick(0.01, overfit=0.0),
        ),
        steps=300,
        save_interval=6,
        eval_every=30,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="RNN with tanh, dropout, one logit, BCEWithLogitsLoss, AdamW, clipped gradients",
    data="16 heights of a piece of land, and whether the next but one is higher",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "5e-6 with AdamW, a thousandth of what is needed",
        "lr_too_high": "1 with AdamW, 200 times what is needed",
        "missing_normalisation": "heights above the sea in metres, some hundreds: tanh is "
        "saturated",
        "double_activation": "a sigmoid of the score ahead of BCEWithLogitsLoss, which has its "
        "own: no probability is below 0.5",
        "saturated_activation": "the recurrent layer's weights start 30 times as large",
        "exploding_rnn": "ReLU instead of tanh, weights of variance 1, no clipping",
        "init_constant": "all weights start at 0.1: all units stay the same",
        "labels_shuffled": "training labels are in the reverse order of their inputs",
        "labels_constant": "a height is compared with itself: no place is higher",
        "data_leak": "the window ends with the place that is asked for",
        "overfit": "32 profiles, twice the units, no dropout, no weight decay",
    },
)
