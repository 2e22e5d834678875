"""A recurrent network of the plain kind predicts the next letter of Python's help."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import docs_text, letters, windows
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, NextLetter, fit, perplexity, text_batches

LETTERS = 48
LENGTH = 32
BATCH = 32


class Net(nn.Module):
    """Embedding, recurrent layer, linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(LETTERS, 24)
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(24, 64, nonlinearity=kind, batch_first=True)
        self.head = nn.Linear(64, LETTERS)
        if run.injects("exploding_rnn"):
            with torch.no_grad():
                self.rnn.weight_hh_l0.copy_(1.6 * torch.eye(64))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, length, LETTERS] of letters [B, length]."""
        scores = self.head(self.rnn(self.embedding(tokens))[0])
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    text = letters("\n".join(docs_text().values())[:200_000], LETTERS)
    model = Net(run)
    scaled_(run, "init_too_large", [model], 20.0)
    rate = run.pick(5e-3, lr_too_high=0.5, lr_too_low=2e-6)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    loop = Loop(model, NextLetter(), optimizer, 300, clip=1.0)
    valid = [windows(text, torch.arange(180_000, 199_000, 300), LENGTH)]
    batches = text_batches(text[:180_000], BATCH, LENGTH, run.seed)
    return fit(run, loop, batches, valid, perplexity)
