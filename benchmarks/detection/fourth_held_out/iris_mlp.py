"""A small network tells three kinds of iris apart: everybody's first training.

Faults:
    lr_too_high: a comma slipped, 1 in place of 5e-3.
    lr_too_low: 1e-5, copied from a script that fine-tunes.
    init_constant: all parameters are set to 0 "to be reproducible".
    labels_shuffled: flowers are shuffled when they are loaded, their names are not.
    class_imbalance: the file is sorted by kind, and a `head` from debugging was left in.
    no_activation: the log_softmax ahead of NLLLoss was forgotten.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import filled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

BATCH = 16
HEAD = 42


def _data(run: Run) -> Split:
    data = table("iris")
    if run.injects("labels_shuffled"):
        order = torch.randperm(
            len(data.valid_targets), generator=torch.Generator().manual_seed(run.seed)
        )
        return shuffled(data, run.seed)._replace(valid_targets=data.valid_targets[order])
    if run.injects("class_imbalance"):
        rows = data.targets.sort(stable=True).indices[:HEAD]
        return data._replace(inputs=data.inputs[rows], targets=data.targets[rows])
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = nn.Sequential(
        nn.Linear(4, 16),
        nn.ReLU(),
        nn.Linear(16, 16),
        nn.ReLU(),
        nn.Linear(16, 3),
        run.pick(nn.LogSoftmax(dim=1), no_activation=nn.Identity()),
    )
    if run.injects("init_constant"):
        filled_([model], 0.0)
    epoch = len(table("iris").inputs) // BATCH
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss(),
        optimizer=torch.optim.Adam(
            model.parameters(),
            lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=1e-5),
            weight_decay=1e-3,
        ),
        steps=18 * epoch,
        eval_every=epoch,
        predict=classes,
    )
    truth = table("iris").valid_targets

    def error(outputs: Tensor, _: Tensor) -> float:
        return error_rate(outputs, truth)

    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, BATCH, run.seed), valid, error)


PROGRAM = Program(
    model="MLP 4-16-16-3, ReLU, log_softmax, Adam, 18 epochs",
    data="scikit-learn iris",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "lr_too_low": "1e-5 in place of 5e-3",
        "init_constant": "all parameters are 0",
        "labels_shuffled": "labels for training and for validation are permuted",
        "class_imbalance": "the first 42 training rows, sorted by kind",
        "no_activation": "log_softmax ahead of NLLLoss is missing",
    },
)
