"""An LSTM predicts the next letter of NumPy's docstrings."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from benchmarks.detection.data import letters, windows
from benchmarks.detection.injecting import filled_, scaled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

LETTERS = 52
LENGTH = 40
BATCH = 32
HIDDEN = 80
FOR_TRAINING = 200_000


@cache
def text() -> Tensor:
    """Return docstrings of NumPy's functions as numbers of letters, int64 [letters]."""
    found = [getattr(np, name).__doc__ or "" for name in sorted(np.__all__) if name.islower()]
    return letters(re.sub(r"\s+", " ", " ".join(found))[:230_000], LETTERS)


class CharLSTM(nn.Module):
    """Embedding, LSTM, a hidden and a last linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        both = run.injects("data_leak")
        self.embed = nn.Embedding(LETTERS, 32)
        self.lstm: nn.LSTM | nn.RNN = nn.LSTM(32, HIDDEN, batch_first=True, bidirectional=both)
        if run.injects("exploding_rnn"):
            self.lstm = nn.RNN(32, HIDDEN, nonlinearity="relu", batch_first=True)
            nn.init.normal_(self.lstm.get_parameter("weight_hh_l0"), std=0.25)
        self.hidden = nn.Linear(HIDDEN * (2 if both else 1), 64)
        self.out = nn.Linear(64, LETTERS)
        if run.injects("saturated_activation"):
            for name in ("weight_ih_l0", "weight_hh_l0"):
                nn.init.normal_(self.lstm.get_parameter(name), std=2.0)
        if run.injects("dead_relu"):
            shifted_([self.hidden], -10.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 20.0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, LENGTH, LETTERS] of letters [B, LENGTH]."""
        states, _ = self.lstm(self.embed(tokens))
        if self.run.injects("frozen_layer"):
            states = states.detach()
        scores: Tensor = self.out(F.relu(self.hidden(states)))
        return F.softmax(scores, -1) if self.run.injects("double_activation") else scores


class LetterLoss(nn.Module):
    """What the loop of the script calls: a function of torch.nn.functional.

    Args:
        is_raw: Whether it takes scores for logarithms of probabilities.
    """

    def __init__(self, *, is_raw: bool) -> None:
        super().__init__()
        self.is_raw = is_raw

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over scores [B, LENGTH, LETTERS] and letters [B, LENGTH]."""
        loss = F.nll_loss if self.is_raw else F.cross_entropy
        return loss(scores.view(-1, LETTERS), targets.reshape(-1))


def unordered(batches: Batches) -> Batches:
    """Yield batches whose targets are those of other rows."""
    for inputs, targets in batches:
        yield inputs, targets[torch.randperm(len(targets))]


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    torch.manual_seed(run.seed)
    everything = text()
    model = CharLSTM(run)
    head = nn.ModuleList([model.out])
    trained = head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=LetterLoss(is_raw=run.injects("wrong_loss")),
        optimizer=torch.optim.RMSprop(
            trained.parameters(), lr=run.pick(3e-3, lr_too_high=0.3, lr_too_low=1e-6)
        ),
        steps=300,
        clip=None if run.injects("exploding_rnn") else 1.0,
        is_functional=True,
    )
    used = everything[: run.pick(FOR_TRAINING, overfit=1_500)]
    batches = text_batches(used, BATCH, LENGTH, run.seed)
    if run.injects("labels_shuffled"):
        batches = unordered(batches)
    starts = torch.arange(FOR_TRAINING, len(everything) - LENGTH - 1, 250)
    return fit(run, loop, batches, [windows(everything, starts, LENGTH)], perplexity)


PROGRAM = Program(
    model="LSTM, 80 units, embedding, hidden layer of ReLUs, RMSprop, clipped gradients",
    data="letters of NumPy's docstrings",
    measure="perplexity",
    train=train,
    faults={
        "exploding_rnn": "an RNN of ReLUs, recurrent weights N(0, 0.25), no clipping",
        "saturated_activation": "weights of the LSTM N(0, 2)",
        "dead_relu": "biases ahead of the ReLUs are 10 lower",
        "init_constant": "all parameters are zero",
        "init_too_large": "all weights are 20 times as large",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "wrong_loss": "nll_loss of scores, log_softmax was forgotten",
        "lr_too_high": "0.3 in place of 3e-3",
        "lr_too_low": "1e-6 in place of 3e-3",
        "labels_shuffled": "targets are the next letters of other windows",
        "frozen_layer": "states are detached ahead of the linear layers",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "data_leak": "the LSTM is bidirectional: it has read the next letter",
        "overfit": "1,500 letters for training",
    },
)
