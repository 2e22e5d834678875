"""An LSTM predicts the next letter of the source of Python's library."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import code_text, letters, windows
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, NextLetter, fit, perplexity, text_batches

LETTERS = 64
LENGTH = 32


class Net(nn.Module):
    """Embedding, LSTM, linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(LETTERS, 24)
        self.lstm = nn.LSTM(24, 48, batch_first=True)
        self.head = nn.Linear(48, LETTERS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, length, LETTERS] of letters [B, length]."""
        x, _ = self.lstm(self.embedding(tokens))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores = self.head(x)
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


def _text() -> Tensor:
    """Return numbers of letters; pieces are shuffled, so that the end is like the rest."""
    text = "\n".join(code_text().values())[:220_000]
    pieces = letters(text, LETTERS).view(-1, 550)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    return pieces[order].flatten()


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    torch.manual_seed(run.seed)
    text = _text()
    model = Net(run)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=run.pick(1e-2, lr_too_high=1.0, lr_too_low=5e-6)
    )
    loop = Loop(
        model=model,
        criterion=NextLetter(),
        optimizer=optimizer,
        steps=300,
        eval_every=75,
        clip=5.0,
    )
    valid = [windows(text, torch.arange(200_000, 219_000, 300), LENGTH)]
    batches = text_batches(text[:200_000], 32, LENGTH, run.seed)
    return fit(run, loop, batches, valid, perplexity)


PROGRAM = Program(
    model="LSTM, 48 units, embedding, Adam, clipped gradients",
    data="letters of the source of Python's library",
    measure="perplexity",
    train=train,
    faults={
        "lr_too_high": "1 in place of 1e-2",
        "lr_too_low": "5e-6 in place of 1e-2",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "frozen_layer": "the LSTM's output is detached",
        "stalled": "hangs after 60 % of the steps",
    },
)
