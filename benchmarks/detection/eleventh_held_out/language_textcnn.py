"""A convolutional network over letters tells Python from C."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, code_text, letters
from benchmarks.detection.injecting import constant, few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_LETTERS, _LENGTH, _PIECES = 96, 40, 1500


class Net(nn.Module):
    """Embedding, two widths of convolutions, the largest of each place, two scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(_LETTERS, 16)
        self.narrow = nn.Conv1d(16, 24, 3, padding=1)
        self.wide = nn.Conv1d(16, 24, 5, padding=2)
        self.drop = nn.Dropout(run.pick(0.3, overfit=0.0))
        self.head = nn.Linear(48, 2)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, 2] of letters, int64 [B, length]."""
        x = self.embedding(text).transpose(1, 2)
        found = [functional.relu(conv(x)).amax(2) for conv in (self.narrow, self.wide)]
        pooled = torch.cat(found, 1)
        if self.run.injects("frozen_layer"):
            pooled = pooled.data
        scores: Tensor = self.head(self.drop(pooled))
        return functional.softmax(scores, 1) if self.run.injects("double_activation") else scores


class Loss(nn.Module):
    """Cross entropy of two scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of scores [B, 2] and classes, int64 [B]."""
        if self.run.injects("wrong_loss"):
            return functional.nll_loss(scores, targets)
        return functional.cross_entropy(scores, targets)


@cache
def _pieces() -> Split:
    include = Path(sysconfig.get_path("include"))
    headers = [path.read_text("utf-8", "replace") for path in sorted(include.glob("*.h"))]
    texts = ("\n".join(code_text().values()), "\n".join(headers))
    # One numbering of letters for both.
    both = letters("".join(texts), _LETTERS)
    random = np.random.default_rng(4)
    inputs, targets = [], []
    for label, text in enumerate((both[: len(texts[0])], both[len(texts[0]) :])):
        for start in _LENGTH * random.permutation(len(text) // _LENGTH)[:_PIECES]:
            inputs.append(text[start : start + _LENGTH])
            targets.append(label)
    order = torch.tensor(random.permutation(len(targets)))
    x, y = torch.stack(inputs)[order], torch.tensor(targets)[order]
    held_out = len(y) // 4
    return Split(x[held_out:], y[held_out:], x[:held_out], y[:held_out])


def _data(run: Run) -> Split:
    data = _pieces()
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("labels_shuffled"):
        # Sorted by length for padding in an earlier version: the texts are, the labels are not.
        order = data.inputs.sum(1).argsort()
        data = data._replace(inputs=data.inputs[order])
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("overfit"):
        data = few(data, 24)
    if run.injects("data_leak"):
        data = data._replace(
            inputs=_named(data.inputs, data.targets),
            valid_inputs=_named(data.valid_inputs, data.valid_targets),
        )
    return data


def _named(text: Tensor, targets: Tensor) -> Tensor:
    return torch.cat([text[:, :1] * 0 + 10 + targets[:, None], text[:, 1:]], 1)


def _log_loss(scores: Tensor, targets: Tensor) -> float:
    return float(functional.cross_entropy(scores, targets).nan_to_num(1e9))


def train(run: Run) -> float:
    """Train once; return the log loss."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(3e-3, lr_too_low=1e-5, lr_too_high=1.0)
        ),
        steps=240,
        save_interval=6,
        eval_every=30,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 48, run.seed), valid, _log_loss)


PROGRAM = Program(
    model="embedding, convolutions over letters, dropout, two logits, functional cross entropy, "
    "Adam",
    data="pieces of 40 letters of Python's library and of its C headers",
    measure="log loss",
    train=train,
    faults={
        "lr_too_low": "1e-5 with Adam, a 300th of what is needed",
        "lr_too_high": "1 with Adam, 300 times what is needed",
        "double_activation": "softmax ahead of cross entropy, which has one",
        "wrong_loss": "nll_loss on scores that went through no log_softmax: it has no lower end",
        "labels_shuffled": "texts were sorted, and their labels were not",
        "labels_constant": "all training labels are that of the first piece",
        "class_imbalance": "one in 100 pieces of C in training",
        "frozen_layer": "`.data` of the pooled features goes to the head: embedding and "
        "convolutions are never trained",
        "optimiser_missing_parameters": "the optimiser has the head's parameters only",
        "data_leak": "the first letter of a piece says which language it is",
        "overfit": "24 pieces, no dropout",
    },
)
