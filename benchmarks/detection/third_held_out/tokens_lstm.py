"""A bidirectional LSTM tells of each letter of Python's library what kind of token it is in."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.detection.data import code_text, letters
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, classes, error_rate, fit

LETTERS = 64
LENGTH = 32
BATCH = 16
KINDS = {tokenize.NAME: 1, tokenize.STRING: 3, tokenize.NUMBER: 4, tokenize.OP: 5}
KEYWORD, OTHER = 2, 0


class Net(nn.Module):
    """Embedding, LSTM in both directions, dropout, linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(LETTERS, 16)
        self.lstm = nn.LSTM(16, 32, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(64, 6)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, LENGTH, 6] of letters [B, LENGTH]."""
        states, _ = self.lstm(self.embedding(text))
        if self.run.injects("frozen_layer"):
            states = states.detach()
        scores: Tensor = self.head(self.drop(states))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class OfEachLetter(nn.Module):
    """Cross entropy, that wants classes in the second place.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.is_scrambled = run.injects("wrong_loss")
        self.cross_entropy = nn.CrossEntropyLoss()

    def forward(self, scores: Tensor, kinds: Tensor) -> Tensor:
        """Return the mean over scores [B, LENGTH, 6] and kinds [B, LENGTH]."""
        by_class = scores.transpose(1, 2)
        if self.is_scrambled:
            by_class = scores.reshape(-1, 6, LENGTH)
        loss: Tensor = self.cross_entropy(by_class, kinds)
        return loss


def _bare(source: str) -> str:
    """Return source without comments and docstrings: inside of them nothing tells what they are."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            told = ast.get_docstring(node)
            node.body = [ast.Pass(), *node.body[1:]] if told else node.body
    return ast.unparse(tree)


@cache
def _text() -> tuple[Tensor, Tensor]:
    modules = code_text()
    source = "\n".join(_bare(modules[name]) for name in ("argparse", "difflib", "tarfile"))
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    kinds = torch.full((len(source),), OTHER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = KEYWORD if keyword.iskeyword(token.string) else KINDS.get(token.type, OTHER)
        first, last = (starts[row - 1] + column for row, column in (token.start, token.end))
        kinds[first:last] = kind
    return letters(source, LETTERS), kinds


def _batches(run: Run, text: Tensor, kinds: Tensor) -> Batches:
    random = torch.Generator().manual_seed(run.seed)
    while True:
        at = torch.randint(len(text) - LENGTH, (BATCH, 1), generator=random)
        at = at + torch.arange(LENGTH)
        order = torch.randperm(BATCH, generator=random)
        yield text[at], kinds[at[order] if run.injects("labels_shuffled") else at]


def train(run: Run) -> float:
    """Train once; return the share of letters whose kind is taken for another one."""
    torch.manual_seed(run.seed)
    text, kinds = _text()
    model = Net(run)
    optimizer = torch.optim.Adam(
        run.pick(model, optimiser_missing_parameters=model.head).parameters(),
        lr=run.pick(1e-2, lr_too_high=1.0),
    )
    loop = Loop(
        model=model,
        criterion=OfEachLetter(run),
        optimizer=optimizer,
        steps=200,
        clip=1.0,
        predict=classes,
    )
    end = len(text) - 20_000
    at = torch.arange(end, len(text) - LENGTH, 5 * LENGTH)[:, None] + torch.arange(LENGTH)
    batches = _batches(run, text[:end], kinds[:end])
    return fit(run, loop, batches, [(text[at], kinds[at])], error_rate)


PROGRAM = Program(
    model="bidirectional LSTM, 2 x 32 units, embedding, dropout, Adam, clipped gradients",
    data="letters of Python's library and the kinds of their tokens",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 1e-2",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "wrong_loss": "scores are reshaped, not transposed, ahead of the cross entropy",
        "frozen_layer": "the LSTM's states are detached",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "labels_shuffled": "kinds are those of another piece of the batch",
    },
)
