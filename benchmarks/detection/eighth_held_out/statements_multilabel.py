"""A mean of embeddings tells which statements a function has, by the names in it."""

from __future__ import annotations

import ast
import keyword
import re
import sysconfig
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

KINDS = (ast.For, ast.If, ast.Try, ast.Return, ast.Raise, ast.With)
WORDS, LENGTH, WIDTH, HELD_OUT = 400, 40, 24, 700


@cache
def functions() -> tuple[Tensor, Tensor]:
    """Return words of functions, int64 [B, LENGTH], 0 for none, and their statements [B, 6]."""
    texts, labels = [], []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-h]*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                words = re.findall(r"[A-Za-z_]\w+|[=<>!+*%-]=?|[\[({:]", ast.unparse(node))
                texts.append([word for word in words if not keyword.iskeyword(word)][:LENGTH])
                inside = list(ast.walk(node))
                labels.append([float(any(isinstance(x, kind) for x in inside)) for kind in KINDS])
    frequent = Counter(word for text in texts for word in text).most_common(WORDS - 2)
    numbers = {word: number for number, (word, _) in enumerate(frequent, 2)}
    rows = [[numbers.get(word, 1) for word in text] for text in texts]
    inputs = torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return inputs[order], torch.tensor(labels)[order]


class Net(nn.Module):
    """Embeddings, their mean, and two linear layers."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embed = nn.Embedding(WORDS + 2 * len(KINDS), WIDTH, padding_idx=0)
        self.hidden = nn.Linear(WIDTH, 32)
        self.drop = nn.Dropout(run.pick(0.2, overfit=0.0))
        self.head = nn.Linear(32, len(KINDS))

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, 6] of words, int64 [B, places]."""
        there = (words > 0).float()[..., None]
        mean = (self.embed(words) * there).sum(1) / there.sum(1).clamp(min=1).sqrt()
        x = self.drop(functional.gelu(self.hidden(mean)))
        scores: Tensor = self.head(x)
        return scores.sigmoid() if self.run.injects("double_activation") else scores


class Loss(nn.Module):
    """Binary cross entropy of each kind of statement, or one softmax over them.

    Args:
        is_one: Whether it is one softmax.
    """

    def __init__(self, *, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores and labels [B, 6]."""
        if self.is_one:
            return functional.cross_entropy(scores, labels)
        return functional.binary_cross_entropy_with_logits(scores, labels)


def wrong_share(scores: Tensor, labels: Tensor) -> float:
    """Return the share of labels that are wrong."""
    return float(((scores > 0).float() != labels).float().mean())


def _tagged(words: Tensor, labels: Tensor) -> Tensor:
    tags = WORDS + 2 * torch.arange(len(KINDS)) + labels.long()
    return torch.cat([words, tags], 1)


def _data(run: Run) -> Split:
    x, y = functions()
    if run.injects("data_leak"):
        x = _tagged(x, y)
    data = Split(x[HELD_OUT:], y[HELD_OUT:], x[:HELD_OUT], y[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, 9)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of wrong labels."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=Loss(is_one=run.injects("wrong_loss")),
        optimizer=torch.optim.AdamW(
            model.parameters(),
            lr=run.pick(3e-3, lr_too_low=3e-6),
            weight_decay=run.pick(0.05, overfit=0.0),
        ),
        steps=300,
        eval_every=50,
        predict=lambda scores: (scores > 0).float(),
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, wrong_share)


PROGRAM = Program(
    model="Bag of embeddings, GELU, dropout, AdamW, six labels a row",
    data="functions of Python's library: names in them, and which statements they have",
    measure="share of wrong labels",
    train=train,
    faults={
        "lr_too_low": "learning rate 3e-6 instead of 3e-3, 1,000 times too low",
        "double_activation": "the model ends in a sigmoid, and the loss has one, too",
        "wrong_loss": "one softmax over labels of which several can be right at once",
        "labels_shuffled": "the training labels are those of other functions",
        "labels_constant": "every function got the labels of the first one",
        "overfit": "60 functions for training, no dropout, no weight decay",
        "data_leak": "the export wrote the labels behind the words, as six tags",
    },
)
