"""An LSTM tells from which package of Python's library a piece of 16 words is."""

from __future__ import annotations

import asyncio
import email
import re
import unittest
import xml
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

PACKAGES = (asyncio, email, unittest, xml)
LENGTH = 16
PIECES = 1500
WORDS = 500
UNITS = 32


class Classifier(nn.Module):
    """Embedding, LSTM, the mean of its states, linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(WORDS + len(PACKAGES), 24)
        self.rnn: nn.RNNBase = nn.LSTM(24, UNITS, batch_first=True)
        if run.injects("exploding_rnn"):
            self.rnn = nn.RNN(24, UNITS, nonlinearity="relu", batch_first=True)
            with torch.no_grad():
                self.rnn.all_weights[0][1].copy_(2.0 * torch.eye(UNITS))
        self.dropout = nn.Dropout(run.pick(0.4, overfit=0.0))
        self.head = nn.Linear(UNITS, len(PACKAGES))
        if run.injects("init_too_large"):
            scaled_([self], 20.0)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, 4] of words [B, 16]."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                states, _ = self.rnn(self.embedding(words))
        else:
            states, _ = self.rnn(self.embedding(words))
        scores: Tensor = self.head(self.dropout(states.mean(1)))
        return scores


def pieces() -> tuple[Tensor, Tensor]:
    """Return numbers of words, int64 [B, 16], and of packages, int64 [B]."""
    texts = []
    for package in PACKAGES:
        folder = Path(package.__path__[0])
        text = "\n".join(path.read_text("utf-8") for path in sorted(folder.rglob("*.py")))
        texts.append(re.findall(r"[A-Za-z]+", text)[: PIECES * LENGTH])
    counts = sum((Counter(text) for text in texts), Counter[str]())
    numbers = {word: number for number, (word, _) in enumerate(counts.most_common(WORDS - 1))}
    inputs = [[numbers.get(word, WORDS - 1) for word in text] for text in texts]
    order = torch.randperm(PIECES * len(PACKAGES), generator=torch.Generator().manual_seed(3))
    targets = torch.arange(len(PACKAGES)).repeat_interleave(PIECES)
    return torch.tensor(inputs).view(-1, LENGTH)[order], targets[order]


def dataset(run: Run) -> Split:
    """Return pieces of text and their packages; a quarter is for validation."""
    words, packages = pieces()
    if run.injects("data_leak"):
        words = torch.cat([WORDS + packages[:, None], words[:, 1:]], 1)
    held_out = len(packages) // 4
    data = Split(words[held_out:], packages[held_out:], words[:held_out], packages[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    return few(data, 80) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Classifier(run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.head.parameters())
    else:
        parameters = list(model.parameters())
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(
            parameters, lr=run.pick(4e-3, lr_too_high=2.0, lr_too_low=1e-6), weight_decay=1e-4
        ),
        steps=240,
        eval_every=40,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="embedding, LSTM, mean over time, dropout, Adam, clipped gradients",
    data="words of four packages of Python's library",
    measure="error rate",
    train=train,
    faults={
        "exploding_rnn": "RNN with ReLU in place of the LSTM, recurrent weights 2 I, no clipping",
        "lr_too_high": "2 in place of 4e-3",
        "lr_too_low": "1e-6 in place of 4e-3",
        "init_too_large": "all weights are 20 times as large",
        "labels_shuffled": "labels are shuffled apart from the texts",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 pieces of every package but one",
        "frozen_layer": "embedding and LSTM are computed under no_grad",
        "optimiser_missing_parameters": "only the last layer's parameters are given to Adam",
        "data_leak": "the first word is a tag with the name of the package",
        "overfit": "80 pieces, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
