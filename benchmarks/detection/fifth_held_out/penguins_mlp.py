"""A network of tanh units tells three kinds of penguins apart.

Faults:
    no_activation: the log_softmax ahead of NLLLoss was forgotten.
    init_constant: all parameters are set to 0.
    saturated_activation: weights are drawn by `normal_`, with a deviation of 30.
    missing_normalisation: millimetres and grams go in.
    class_imbalance: the file is sorted by kind, and `iloc[:k]` was taken for training.
    stalled: the loader hangs.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path

import sklearn
import torch
from torch import nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

FOLDER = "datasets/tests/data/openml/id_42585"
KINDS = ("Adelie", "Chinstrap", "Gentoo")
HELD_OUT = 100
FIRST = 108
"""Rows of the sorted file that `class_imbalance` trains with: the first kind and a few more."""


@cache
def _penguins() -> Split:
    """Return bill, flipper and mass [B, 4], millimetres and grams, and numbers of kinds [B]."""
    (path,) = (Path(sklearn.__file__).parent / FOLDER).glob("data-*.arff.gz")
    text = gzip.decompress(path.read_bytes()).decode()
    body = text[text.upper().index("@DATA") :].splitlines()[1:]
    rows, labels = [], []
    for row in csv.reader(body):
        if len(row) > 1 and "?" not in row[2:6]:
            rows.append([float(cell) for cell in row[2:6]])
            labels.append(KINDS.index(row[0]))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    inputs, targets = torch.tensor(rows)[order], torch.tensor(labels)[order]
    return Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _penguins()
    if not run.injects("missing_normalisation"):
        mean, std = data.inputs.mean(0), data.inputs.std(0)
        data = data._replace(
            inputs=(data.inputs - mean) / std, valid_inputs=(data.valid_inputs - mean) / std
        )
    if run.injects("class_imbalance"):
        rows = data.targets.sort(stable=True).indices[:FIRST]
        return data._replace(inputs=data.inputs[rows], targets=data.targets[rows])
    return data


def _model(run: Run) -> nn.Sequential:
    first, second = nn.Linear(4, 24), nn.Linear(24, 12)
    model = nn.Sequential(
        first,
        nn.Tanh(),
        second,
        nn.Tanh(),
        nn.Linear(12, len(KINDS)),
        run.pick(nn.LogSoftmax(dim=1), no_activation=nn.Identity()),
    )
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("saturated_activation"):
        nn.init.normal_(first.weight, std=30.0)
        nn.init.normal_(second.weight, std=30.0)
    return model


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run)
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
        steps=150,
        save_interval=3,
        eval_every=15,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 16, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP 4-24-12-3, tanh, log_softmax, SGD with Nesterov's momentum, 10 epochs",
    data="penguins of Palmer station, from a file that comes with scikit-learn's tests",
    measure="error rate",
    train=train,
    faults={
        "no_activation": "log_softmax ahead of NLLLoss is missing",
        "init_constant": "all parameters are 0",
        "saturated_activation": "weights of both hidden layers have a standard deviation of 30",
        "missing_normalisation": "columns are millimetres and grams",
        "class_imbalance": "the first 108 training rows, sorted by kind",
        "stalled": "hangs after 60 % of the steps",
    },
)
