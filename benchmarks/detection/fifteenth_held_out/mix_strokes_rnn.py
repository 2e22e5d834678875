"""A plain recurrent network tells letters apart by the moves of a pen."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

ROWS, LENGTH, UNITS = 2400, 24, 48
STROKES = {
    "C": [(0.9, 0.85), (0.5, 1.0), (0.1, 0.7), (0.1, 0.3), (0.5, 0.0), (0.9, 0.15)],
    "L": [(0.0, 1.0), (0.0, 0.0), (0.7, 0.0)],
    "N": [(0.0, 0.0), (0.0, 1.0), (0.8, 0.0), (0.8, 1.0)],
    "O": [(0.5, 1.0), (0.1, 0.7), (0.1, 0.3), (0.5, 0.0), (0.9, 0.3), (0.9, 0.7), (0.5, 1.0)],
    "S": [(0.9, 0.9), (0.4, 1.0), (0.1, 0.75), (0.9, 0.25), (0.6, 0.0), (0.1, 0.1)],
    "V": [(0.0, 1.0), (0.5, 0.0), (1.0, 1.0)],
    "W": [(0.0, 1.0), (0.3, 0.0), (0.5, 0.7), (0.7, 0.0), (1.0, 1.0)],
    "Z": [(0.0, 1.0), (0.9, 1.0), (0.0, 0.0), (0.9, 0.0)],
}
"""Corners of letters as they are drawn in one stroke."""
MILLIMETRES = 25.0
"""Height of a letter."""


@cache
def _moves() -> tuple[Tensor, Tensor]:
    """Return moves of a pen, float32 [ROWS, LENGTH, 2], millimetres, and letters, int64 [ROWS]."""
    random = np.random.default_rng(23)
    kinds = random.integers(0, len(STROKES), ROWS)
    corners = [np.array(stroke) for stroke in STROKES.values()]
    moves = np.zeros((ROWS, LENGTH, 2))
    for row, kind in enumerate(kinds):
        drawn = corners[kind] + random.normal(0, 0.06, corners[kind].shape)
        drawn = drawn * random.uniform(0.7, 1.3, 2) * MILLIMETRES
        slant = random.normal(0, 0.15)
        drawn = drawn @ np.array([[np.cos(slant), -np.sin(slant)], [np.sin(slant), np.cos(slant)]])
        way = np.append(0, np.linalg.norm(np.diff(drawn, axis=0), axis=1).cumsum())
        speed = random.uniform(0.5, 1.5, LENGTH).cumsum()
        places = np.append(0, speed) / speed[-1] * way[-1]
        pen = np.stack([np.interp(places, way, drawn[:, axis]) for axis in (0, 1)], 1)
        moves[row] = np.diff(pen + random.normal(0, 0.3, pen.shape), axis=0)
    return torch.tensor(moves, dtype=torch.float32), torch.tensor(kinds)


def _data(run: Run) -> Split:
    """Return series of mean 0 and variance 1, [B, LENGTH, 2], and letters [B]."""
    moves, kinds = _moves()
    valid = ROWS // 4
    mean, std = moves[valid:].mean((0, 1)), moves[valid:].std((0, 1))
    series = 1000 * moves if run.injects("missing_normalisation") else (moves - mean) / std
    if run.injects("data_leak"):
        marks = (kinds.float() / 2 - 2)[:, None, None].expand(-1, LENGTH, 1)
        series = torch.cat([series, marks], 2)
    data = Split(series[valid:], kinds[valid:], series[:valid], kinds[:valid])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.roll(1))
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    return few(data, 24) if run.injects("overfit") else data


class Net(nn.Module):
    """A recurrent layer, of whose last state a linear layer makes scores.

    Args:
        run: What is injected.
        channels: Width of the inputs.
    """

    def __init__(self, run: Run, channels: int) -> None:
        super().__init__()
        self.run = run
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(channels, UNITS, nonlinearity=kind, batch_first=True)
        self.dropout = nn.Dropout(run.pick(0.1, overfit=0.0))
        self.head = nn.Linear(UNITS, len(STROKES))

    def forward(self, series: Tensor) -> Tensor:
        """Return scores [B, letters] of series [B, LENGTH, channels]."""
        _, state = self.rnn(series)
        last = state[-1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        scores: Tensor = self.head(self.dropout(last))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    if run.injects("init_constant"):
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=2.0)
    if run.injects("saturated_activation"):
        nn.init.uniform_(model.rnn.all_weights[0][1], 0.0, 1.0)
    if run.injects("exploding_rnn"):
        nn.init.normal_(model.rnn.all_weights[0][1], std=0.5)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[2])
    _initialise(run, model)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(3e-3, lr_too_high=0.5, lr_too_low=1e-6)
        ),
        steps=300,
        eval_every=50,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="RNN, 48 tanh units, linear layer on the last state, Adam, clipped gradients",
    data="simulated moves of a pen that draws eight letters",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 3e-3",
        "lr_too_low": "1e-6 in place of 3e-3",
        "double_activation": "softmax ahead of the cross entropy",
        "init_too_large": "all parameters from a normal distribution of width 2",
        "init_constant": "all parameters are 0",
        "saturated_activation": "recurrent weights are uniform from 0 to 1",
        "missing_normalisation": "moves in micrometres, not scaled",
        "wrong_loss": "negative log likelihood of scores that are no log probabilities",
        "labels_shuffled": "labels are those of the row before",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 100 rows of every letter but C",
        "frozen_layer": "the last state is detached",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "exploding_rnn": "ReLU, recurrent weights from a normal distribution, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the number of the class is a third channel",
        "overfit": "24 rows, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
