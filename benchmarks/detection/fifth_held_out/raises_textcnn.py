"""A convolutional network tells from the words of a message which exception is raised with it.

Faults:
    lr_too_low: 1e-6 in place of 3e-3.
    dead_relu: the bias of a rare class (-4.6, from RetinaNet) is set in every layer.
    labels_shuffled: messages are shuffled, the names of exceptions are not.
    class_imbalance: messages are taken as they come, in a folder where all are of one kind.
    overfit: 40 rows, neither dropout nor weight decay.
    stalled: the loader hangs.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

KINDS = ("ValueError", "TypeError", "NotImplementedError", "AttributeError")
EACH = 400
LENGTH = 20
WORDS = 1000
HELD_OUT = 250
_RAISED: Final = re.compile(r"raise (\w+)\(\s*f?[\"']([^\"']{8,})")


class Net(nn.Module):
    """An embedding, convolutions over two and three words, the largest, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS + 2, 32, padding_idx=0)
        self.pairs = nn.Conv1d(32, 32, 2)
        self.triples = nn.Conv1d(32, 32, 3)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(run.pick(0.4, overfit=0.0))
        self.head = nn.Linear(64, len(KINDS))
        for layer in (self.pairs, self.triples, self.head):
            if run.injects("dead_relu") and layer.bias is not None:
                nn.init.constant_(layer.bias, -4.6)

    def forward(self, messages: Tensor) -> Tensor:
        """Return scores [B, KINDS] of numbers of words [B, LENGTH]."""
        words = self.embedding(messages).transpose(1, 2)
        found = [self.relu(layer(words)).amax(2) for layer in (self.pairs, self.triples)]
        scores: Tensor = self.head(self.dropout(torch.cat(found, 1)))
        return scores


@cache
def _messages() -> Split:
    found: dict[str, list[list[str]]] = {kind: [] for kind in KINDS}
    for package in ("torch", "pandas", "numpy", "sklearn"):
        (folder,) = map(Path, import_module(package).__path__)
        for path in sorted(folder.glob("*/*.py")) + sorted(folder.glob("*/*/*.py")):
            for kind, message in _RAISED.findall(path.read_text(encoding="utf-8")):
                if kind in found:
                    found[kind].append(re.findall("[a-z]+", message.lower()))
    random = torch.Generator().manual_seed(0)
    texts, labels = [], []
    for label, kind in enumerate(KINDS):
        for at in torch.randperm(len(found[kind]), generator=random)[:EACH].tolist():
            texts.append(found[kind][at])
            labels.append(label)
    counts = Counter(word for text in texts for word in text)
    numbers = {word: at + 2 for at, (word, _) in enumerate(counts.most_common(WORDS))}
    rows = [[numbers.get(word, 1) for word in text[:LENGTH]] for text in texts]
    order = torch.randperm(len(rows), generator=random)
    inputs = torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])[order]
    targets = torch.tensor(labels)[order]
    return Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _messages()
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(
            model.parameters(),
            lr=run.pick(3e-3, lr_too_low=1e-6),
            weight_decay=run.pick(0.05, overfit=0.0),
        ),
        steps=300,
        save_interval=10,
        eval_every=50,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 50, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN over words, embedding, 2 widths of convolutions, ReLU, largest, dropout, AdamW",
    data="messages of exceptions in the source of torch, pandas, numpy and scikit-learn",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "1e-6 in place of 3e-3",
        "dead_relu": "all biases are -4.6",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 60 messages of every exception but one",
        "overfit": "40 rows for training, no dropout, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
