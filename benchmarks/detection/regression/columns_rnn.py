"""A recurrent network written by hand reads handwritten digits, one column after another."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import MultiStepLR

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import drawn_, filled_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

STATES = 48


class Reader(nn.Module):
    """A cell, as in PyTorch's tutorial on names, and a hidden layer after the last state."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.of_input = nn.Linear(4, STATES)
        self.of_state = nn.Linear(STATES, STATES, bias=False)
        self.bend = run.pick(nn.Tanh(), exploding_rnn=nn.Identity())
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(run.pick(0.2, overfit=0.0))
        self.hidden = nn.Linear(STATES, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, strips: Tensor) -> Tensor:
        """Return scores [B, 10] of strips [B, 16, 4]."""
        state = strips.new_zeros(len(strips), STATES)
        for strip in strips.unbind(1):
            state = self.bend(self.of_input(strip) + self.of_state(state))
        scores: Tensor = self.out(self.relu(self.hidden(self.dropout(state))))
        return scores


def _data(run: Run) -> Split:
    """Return strips [B, 16, 4] of pixels from -1 to 1, two for a column, and classes."""
    data = with_fault(run, digits(scaled=False), rows=40, one_in=50)

    def strips(pixels: Tensor) -> Tensor:
        columns = pixels.view(-1, 8, 8).transpose(1, 2).reshape(-1, 16, 4)
        return columns if run.injects("missing_normalisation") else columns / 8.0 - 1.0

    return data.with_inputs(strips)


def _initialise(run: Run, model: Reader) -> None:
    nn.init.orthogonal_(model.of_state.weight)
    if run.injects("exploding_rnn"):
        nn.init.normal_(model.of_state.weight, std=0.5)
    drawn_(run, "saturated_activation", [model.of_input, model.of_state], 3.0, only_weights=True)
    if run.injects("dead_relu"):
        nn.init.constant_(model.hidden.bias, -10.0)
    drawn_(run, "init_too_large", [model], 5.0)
    filled_(run, "init_constant", [model], 0.0)


def train(run: Run) -> float:
    data, model = _data(run), Reader(run)
    _initialise(run, model)
    last = nn.ModuleList([model.hidden, model.out])
    trained = run.pick(model, optimiser_missing_parameters=last)
    rate = run.pick(2e-3, lr_too_high=0.1, lr_too_low=2e-6)
    optimizer = torch.optim.RMSprop(trained.parameters(), rate)
    criterion = run.pick(nn.CrossEntropyLoss(), wrong_loss=nn.NLLLoss())
    scheduler = MultiStepLR(optimizer, [180, 240], 0.3)
    loop = Loop(model, criterion, optimizer, 300, scheduler, clip=1.0, predict=classes)
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation())
