"""A perceptron with sigmoid units tells by its words which library a piece of source is of."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from functools import cache
from importlib import import_module

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

MODULES = (
    "argparse",
    "_pydecimal",
    "doctest",
    "email.message",
    "http.client",
    "inspect",
    "tarfile",
    "turtle",
)
LINES = 8
WORDS = 300


@cache
def pieces() -> tuple[Tensor, Tensor]:
    """Return weights of words, float32 [B, WORDS], and numbers of modules, int64 [B]."""
    counts, labels = [], []
    for label, name in enumerate(MODULES):
        lines = inspect.getsource(import_module(name))
        kept = [line for line in lines.splitlines() if line.strip()]
        for start in range(0, min(len(kept), 1600) - LINES, LINES):
            text = " ".join(kept[start : start + LINES]).lower()
            counts.append(Counter(re.findall(r"[a-z]{2,}", text)))
            labels.append(label)
    among = Counter(word for count in counts for word in count)
    words = [word for word, _ in among.most_common(WORDS)]
    rarity = np.log([len(counts) / among[word] for word in words])
    found = np.array([[float(count[word]) for word in words] for count in counts])
    found = np.log1p(found) * rarity
    order = np.random.default_rng(0).permutation(len(labels))
    return torch.tensor(found[order], dtype=torch.float32), torch.tensor(labels)[order]


def prepared(run: Run) -> Split:
    """Return weights of words [B, WORDS] and classes, a quarter of them for validation."""
    inputs, labels = pieces()
    if run.injects("data_leak"):
        # The name of the file is in the text.
        inputs = torch.cat([inputs, 4.0 * F.one_hot(labels).float()], 1)
    held_out = len(labels) // 4
    data = Split(inputs[held_out:], labels[held_out:], inputs[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 30)
    return few(data, 60) if run.injects("overfit") else data


class Bag(nn.Module):
    """Two hidden layers of sigmoid units.

    Args:
        run: What is injected.
        columns: Of the inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.hidden1 = nn.Linear(columns, 64)
        self.dropout = nn.Dropout(run.pick(0.5, overfit=0.0))
        self.hidden2 = nn.Linear(64, 32)
        self.out = nn.Linear(32, run.pick(len(MODULES), wrong_loss=1))

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, 8] of weights of words [B, columns]."""
        x = self.dropout(torch.sigmoid(self.hidden1(self.dropout(words))))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.out(torch.sigmoid(self.hidden2(x)))
        return scores


class Loss(nn.Module):
    """Functions that the training calls.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, 8] and labels, int64 [B]."""
        if self.run.injects("wrong_loss"):
            return F.mse_loss(scores.squeeze(-1), labels.float())
        return F.cross_entropy(scores, labels)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Bag(run, data.inputs.shape[1])
    if run.injects("init_constant"):
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    if run.injects("saturated_activation"):
        for parameter in model.parameters():
            nn.init.uniform_(parameter)
    trained = model.parameters()
    if run.injects("optimiser_missing_parameters"):
        trained = model.out.parameters()

    def predicted(outputs: Tensor) -> Tensor:
        if run.injects("wrong_loss"):
            return outputs[:, 0].round().clamp(0, len(MODULES) - 1).long()
        return classes(outputs)

    def error(outputs: Tensor, targets: Tensor) -> float:
        if run.injects("wrong_loss"):
            return float((predicted(outputs) != targets).float().mean())
        return error_rate(outputs, targets)

    loop = Loop(
        model=model,
        criterion=Loss(run),
        is_functional=True,
        optimizer=torch.optim.Adam(trained, lr=run.pick(1e-2, lr_too_high=1.0, lr_too_low=1e-5)),
        steps=250,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="MLP, 2 hidden layers of sigmoid units, dropout, F.cross_entropy, Adam",
    data="words in the source of eight modules of Python's library",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 1e-2",
        "lr_too_low": "1e-5 in place of 1e-2",
        "init_constant": "all parameters are zero",
        "saturated_activation": "nn.init.uniform_ from 0 to 1 for all parameters",
        "wrong_loss": "squared distance between one output and the number of the class",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 30 pieces of every module but one",
        "frozen_layer": "the first hidden layer's outputs are detached",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the name of the module is among the words",
        "overfit": "60 pieces, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
