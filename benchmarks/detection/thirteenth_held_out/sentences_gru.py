"""A gated recurrent network tells from the documentation of which package a sentence is."""

from __future__ import annotations

import ast
import asyncio
import email
import re
import unittest
from collections import Counter
from functools import cache
from pathlib import Path

import matplotlib as mpl
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, filled_, imbalanced, scaled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

PACKAGES = (email, mpl, asyncio, unittest)
WORDS = 1200
LENGTH = 20
MOST = 950
"""Sentences of a package."""


@cache
def sentences() -> Split:
    """Return sentences of docstrings, int64 [B, LENGTH], and their packages, int64 [B].

    Words have numbers from 2; 0 stands for none, which is in front, and 1 for a rare word.
    """
    found: list[tuple[list[str], int]] = []
    for label, package in enumerate(PACKAGES):
        own = [words for words in _sentences(Path(package.__path__[0])) if len(words) > 3]  # noqa: PLR2004
        found += [(words, label) for words in own[:MOST]]
    counts = Counter(word for words, _ in found for word in words)
    numbers = {word: place + 2 for place, (word, _) in enumerate(counts.most_common(WORDS - 6))}
    rows = torch.zeros(len(found), LENGTH, dtype=torch.int64)
    for row, (words, _) in zip(rows, found, strict=True):
        known = torch.tensor([numbers.get(word, 1) for word in words[:LENGTH]])
        row[-len(known) :] = known
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    rows, labels = rows[order], torch.tensor([label for _, label in found])[order]
    cut = len(rows) // 5
    return Split(rows[cut:], labels[cut:], rows[:cut], labels[:cut])


def _sentences(folder: Path) -> list[list[str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = []
    for path in sorted(folder.glob("*.py")):
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kinds)
        ]
        texts += [ast.get_docstring(node) or "" for node in nodes]
    parts = dict.fromkeys(part for text in texts for part in re.split(r"(?<=\.)\s+|\n\n", text))
    return [re.findall(r"[a-z_]+", part.lower()) for part in parts]


def leaked(inputs: Tensor, labels: Tensor) -> Tensor:
    """Return sentences whose last word is the name of the package."""
    return torch.cat([inputs[:, 1:], WORDS - 4 + labels[:, None]], 1)


class Classifier(nn.Module):
    """Embedding, GRU, two linear layers on the last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(WORDS, 32, padding_idx=0)
        self.gru: nn.GRU | nn.RNN = nn.GRU(32, 48, batch_first=True)
        if run.injects("exploding_rnn"):
            self.gru = nn.RNN(32, 48, nonlinearity="relu", batch_first=True)
            nn.init.normal_(self.gru.get_parameter("weight_hh_l0"), std=0.5)
        self.dropout = nn.Dropout(0.0 if run.injects("overfit") else 0.3)
        self.head = nn.Sequential(
            nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, run.pick(len(PACKAGES), wrong_loss=1))
        )
        if run.injects("saturated_activation"):
            for name in ("weight_ih_l0", "weight_hh_l0"):
                nn.init.normal_(self.gru.get_parameter(name), std=2.0)
        if run.injects("dead_relu"):
            shifted_([self.head[0]], -10.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 20.0)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, packages] of words [B, LENGTH]."""
        _, last = self.gru(self.dropout(self.embedding(words)))
        if self.run.injects("frozen_layer"):
            last = last.detach()
        scores: Tensor = self.head(self.dropout(last[-1]))
        return scores


class ClassNumber(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus numbers of classes [B]."""
        return nn.functional.mse_loss(outputs[:, 0], labels.float())


def _data(run: Run) -> Split:
    data = sentences()
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    if run.injects("overfit"):
        data = few(data, 60)
    if run.injects("data_leak"):
        data = data._replace(
            inputs=leaked(data.inputs, data.targets),
            valid_inputs=leaked(data.valid_inputs, data.valid_targets),
        )
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Classifier(run)
    trained = model.head if run.injects("optimiser_missing_parameters") else model
    is_number = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        last = len(PACKAGES) - 1
        return outputs[:, 0].round().clamp(0, last).long() if is_number else classes(outputs)

    def error(outputs: Tensor, targets: Tensor) -> float:
        if not is_number:
            return error_rate(outputs, targets)
        return float((predicted(outputs) != targets).float().mean())

    loop = Loop(
        model=model,
        criterion=ClassNumber() if is_number else nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(
            trained.parameters(), lr=run.pick(5e-3, lr_too_high=0.5, lr_too_low=5e-6)
        ),
        steps=300,
        predict=predicted,
        clip=None if run.injects("exploding_rnn") else 5.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="GRU, 48 units, embedding of words, dropout, Adam, clipped gradients",
    data="sentences of docstrings of matplotlib and three packages of Python's library",
    measure="error rate",
    train=train,
    faults={
        "exploding_rnn": "an RNN of ReLUs, recurrent weights N(0, 0.5), no clipping",
        "saturated_activation": "weights of the GRU N(0, 2)",
        "dead_relu": "biases ahead of the ReLUs are 10 lower",
        "init_constant": "all parameters are zero",
        "init_too_large": "all weights are 20 times as large",
        "wrong_loss": "squared error of one output against the number of the class",
        "lr_too_high": "0.5 in place of 5e-3",
        "lr_too_low": "5e-6 in place of 5e-3",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 50 sentences of every package but one",
        "frozen_layer": "the last state is detached ahead of the linear layers",
        "optimiser_missing_parameters": "the optimiser has the last layers only",
        "data_leak": "the name of the package is the last word",
        "overfit": "60 sentences, no dropout",
    },
)
