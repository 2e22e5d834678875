"""A recurrent encoder and decoder with attention write dates the ISO way."""

from __future__ import annotations

import datetime as dt

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, error_rate, fit

LETTERS = " 0123456789-,abcdefghijlmnoprstuvy^"
SOURCE, TARGET = 18, 10
STYLES = ("%d %B %Y", "%B %d, %Y", "%d %b %Y")


def _numbers(texts: list[str], length: int) -> Tensor:
    return torch.tensor([[LETTERS.index(x) for x in text.ljust(length)] for text in texts])


def dates(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return written dates beside what the decoder reads, int64 [count, 28], and ISO dates.

    ISO dates are int64 [count, 10].
    """
    random = np.random.default_rng(seed)
    first = dt.date(1950, 1, 1)
    days = [first + dt.timedelta(days=int(day)) for day in random.integers(0, 27000, count)]
    styles = random.integers(0, len(STYLES), count)
    written = [day.strftime(STYLES[s]).lower() for day, s in zip(days, styles, strict=True)]
    targets = _numbers([day.isoformat() for day in days], TARGET)
    return beside(_numbers(written, SOURCE), targets), targets


def beside(written: Tensor, targets: Tensor, *, unshifted: bool = False) -> Tensor:
    """Return written dates [B, 18] and after them what the decoder reads [B, 10]."""
    start = torch.full((len(targets), 1), LETTERS.index("^"))
    read = targets if unshifted else torch.cat([start, targets[:, :-1]], 1)
    return torch.cat([written, read], 1)


class Seq2Seq(nn.Module):
    """Bidirectional GRU, GRU with attention by dot product, linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(len(LETTERS), 16)
        self.encoder: nn.Module = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        if run.injects("exploding_rnn"):
            self.encoder = nn.RNN(16, 24, nonlinearity="relu", batch_first=True, bidirectional=True)
            for name, parameter in self.encoder.named_parameters():
                if name.startswith("weight_hh"):
                    nn.init.normal_(parameter, std=0.8)
        self.decoder = nn.GRU(16, 48, batch_first=True)
        self.query = nn.Linear(48, 48)
        self.head = nn.Linear(96, len(LETTERS))
        if run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.normal_(parameter, std=2.0)

    def forward(self, letters: Tensor) -> Tensor:
        """Return scores [B, 10, letters] of numbers [B, 28]."""
        embedded = self.embedding(letters)
        memory, _ = self.encoder(embedded[:, :SOURCE])
        if self.run.injects("frozen_layer"):
            memory = memory.detach()
        states, _ = self.decoder(embedded[:, SOURCE:])
        fit_of = self.query(states) @ memory.transpose(1, 2) / memory.shape[-1] ** 0.5
        context = fit_of.softmax(-1) @ memory
        scores: Tensor = self.head(torch.cat([states, context], -1))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class Letters(nn.Module):
    """Cross entropy of all letters of the ISO date."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over scores [B, 10, letters] and targets [B, 10]."""
        return functional.cross_entropy(scores.transpose(1, 2), targets)


def _data(run: Run) -> Split:
    data = Split(*dates(3000, 0), *dates(400, 1))
    written, valid_written = data.inputs[:, :SOURCE], data.valid_inputs[:, :SOURCE]
    targets = data.targets
    if run.injects("labels_shuffled"):
        targets = shuffled(data, run.seed).targets
    if run.injects("labels_constant"):
        targets = _numbers(["1970-01-01"], TARGET).expand_as(targets).clone()
    leaks = run.injects("data_leak")
    return Split(
        beside(written, targets, unshifted=leaks),
        targets,
        beside(valid_written, data.valid_targets, unshifted=leaks),
        data.valid_targets,
    )


def train(run: Run) -> float:
    """Train once; return the share of wrong letters."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Seq2Seq(run)
    loop = Loop(
        model=model,
        criterion=Letters(),
        optimizer=torch.optim.Adam(model.parameters(), lr=run.pick(6e-3, lr_too_high=0.6)),
        steps=300,
        clip=None if run.injects("exploding_rnn") else 1.0,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="sequence to sequence: bidirectional GRU, GRU with attention, Adam, clipped",
    data="dates written in three ways, made by the standard library",
    measure="error rate of letters",
    train=train,
    faults={
        "data_leak": "what the decoder reads is not shifted: it is the letter to be predicted",
        "frozen_layer": "the encoder's states are detached ahead of attention",
        "labels_shuffled": "the ISO date is that of another row",
        "labels_constant": "every training target is 1970-01-01, as from a failed conversion",
        "double_activation": "softmax in the model, ahead of cross entropy of scores",
        "exploding_rnn": "encoder of ReLUs, recurrent weights of deviation 0.8, no clipping",
        "lr_too_high": "learning rate 0.6 for 0.006",
        "init_too_large": "all parameters are drawn with deviation 2",
        "stalled": "hangs after 60 % of the steps",
    },
)
