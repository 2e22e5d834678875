"""An LSTM predicts the next letter of the sources of Python's email package."""

from __future__ import annotations

import email
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.detection.data import letters, windows
from benchmarks.detection.injecting import filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

LETTERS = 64
LENGTH = 32
BATCH = 24
STEPS = 200
HELD_OUT = 30_000


@cache
def _text() -> Tensor:
    """Return the sources one after another, int64 [letters]."""
    folder = Path(email.__file__).parent
    text = "".join(path.read_text("utf-8") for path in sorted(folder.glob("*.py")))
    return letters(text[:240_000], LETTERS)


class CharLSTM(nn.Module):
    """Embedding, LSTM, projection, decoder.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder = nn.Embedding(LETTERS, 32)
        self.lstm: nn.RNNBase = nn.LSTM(
            32, 96, batch_first=True, bidirectional=run.injects("data_leak")
        )
        if run.injects("exploding_rnn"):
            self.lstm = nn.RNN(32, 96, nonlinearity="relu", batch_first=True)
        self.drop = nn.Dropout(run.pick(0.1, overfit=0.0))
        self.project = nn.Linear(run.pick(96, data_leak=192), 64)
        self.decoder = nn.Linear(64, LETTERS)
        self._spoil()

    @torch.no_grad()
    def _spoil(self) -> None:
        if self.run.injects("exploding_rnn"):
            nn.init.orthogonal_(self.lstm.all_weights[0][1], gain=2.0)
        if self.run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.normal_(parameter)
        if self.run.injects("init_constant"):
            filled_([self], 0.01)
        if self.run.injects("dead_relu"):
            nn.init.constant_(self.project.bias, -10.0)
        if self.run.injects("saturated_activation"):
            nn.init.constant_(self.lstm.all_weights[0][2], 10.0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, length, LETTERS] of letters [B, length]."""
        states, _ = self.lstm(self.encoder(tokens))
        if self.run.injects("frozen_layer"):
            states = states.detach()
        scores: Tensor = self.decoder(F.relu(self.project(self.drop(states))))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class Functional(nn.Module):
    """The function of torch.nn.functional that the training calls.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, tokens: Tensor) -> Tensor:
        """Return the mean over scores [B, length, LETTERS] and letters [B, length]."""
        if self.run.injects("wrong_loss"):
            return F.cross_entropy(scores.reshape(len(scores), LETTERS, -1), tokens)
        return F.cross_entropy(scores.transpose(1, 2), tokens)


def _elsewhere(batches: Batches) -> Batches:
    for tokens, following in batches:
        yield tokens, following[torch.randperm(len(following))]


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    torch.manual_seed(run.seed)
    text = _text()
    held_out, text = text[:HELD_OUT], text[HELD_OUT:]
    if run.injects("overfit"):
        text = text[:600]
    model = CharLSTM(run)
    given = model.decoder if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(
        given.parameters(), lr=run.pick(8e-3, lr_too_high=0.5, lr_too_low=1e-6)
    )
    loop = Loop(
        model=model,
        criterion=Functional(run),
        optimizer=optimizer,
        steps=STEPS,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-7),
        clip=None if run.injects("exploding_rnn") else 1.0,
        is_functional=True,
    )
    valid = [windows(held_out, torch.arange(0, HELD_OUT - LENGTH - 1, 400), LENGTH)]
    batches = text_batches(text, BATCH, LENGTH, run.seed)
    if run.injects("labels_shuffled"):
        batches = _elsewhere(batches)
    return fit(run, loop, batches, valid, perplexity)


PROGRAM = Program(
    model="LSTM, 96 units, ReLU projection, dropout, Adam, cosine schedule, F.cross_entropy",
    data="letters of the sources of Python's email package",
    measure="perplexity",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 8e-3",
        "lr_too_low": "1e-6 in place of 8e-3",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_too_large": "all parameters from a normal distribution of deviation 1",
        "init_constant": "all parameters are 0.01",
        "saturated_activation": "one bias of all gates, not of the forget gate only, begins at 10",
        "wrong_loss": "scores reshaped, not transposed, ahead of the cross entropy",
        "labels_shuffled": "pieces of text are shuffled, and what follows them is not",
        "frozen_layer": "states are detached ahead of the projection",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "exploding_rnn": "plain ReLU recurrence, orthogonal weights of gain 2, no clipping",
        "data_leak": "the LSTM is bidirectional, and so reads the next letter",
        "overfit": "600 letters, no dropout",
        "dead_relu": "biases ahead of the ReLU begin at -10",
    },
)
