"""A multilayer perceptron tells from which of two photographs a few statistics are."""

from __future__ import annotations

from functools import cache

import torch
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, filled_, imbalanced, leaking, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

SIDE = 10
"""Of a square of a photograph, pixels."""


@cache
def squares() -> Split:
    """Return statistics of squares, float32 [B, 15] from 0 to 255, and photographs, float32 [B].

    Statistics are mean, spread, least, largest and mean change of red, green and blue.
    """
    inputs, labels = [], []
    for label, name in enumerate(("china.jpg", "flower.jpg")):
        image = torch.tensor(load_sample_image(name), dtype=torch.float32).permute(2, 0, 1)
        cut = image[:, : 427 // SIDE * SIDE].unfold(1, SIDE, SIDE).unfold(2, SIDE, SIDE)
        cut = cut.reshape(3, -1, SIDE * SIDE).transpose(0, 1)
        change = cut.diff(dim=2).abs().mean(2)
        parts = [cut.mean(2), cut.std(2), cut.amin(2), cut.amax(2), change]
        inputs.append(torch.cat(parts, 1))
        labels.append(torch.full((len(cut),), float(label)))
    order = torch.randperm(2 * len(inputs[0]), generator=torch.Generator().manual_seed(0))
    rows, targets = torch.cat(inputs)[order], torch.cat(labels)[order]
    held_out = len(rows) // 4
    return Split(rows[held_out:], targets[held_out:], rows[:held_out], targets[:held_out])


def data_of(run: Run) -> Split:
    """Return the data of a run, whose columns have a mean of 0 and a variance of 1."""
    data = squares()
    if not run.injects("missing_normalisation"):
        mean, std = data.inputs.mean(0), data.inputs.std(0)
        data = data._replace(
            inputs=(data.inputs - mean) / std, valid_inputs=(data.valid_inputs - mean) / std
        )
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    return leaking(data) if run.injects("data_leak") else data


def network(run: Run, columns: int) -> nn.Sequential:
    """Return linear layers with tanh units between them; the last one makes a logit [B, 1]."""
    activation = nn.Identity if run.injects("no_activation") else nn.Tanh
    model = nn.Sequential(
        nn.Linear(columns, 32), activation(), nn.Linear(32, 32), activation(), nn.Linear(32, 1)
    )
    if run.injects("saturated_activation"):
        for name in ("0.weight", "2.weight"):
            nn.init.normal_(model.get_parameter(name), std=10.0)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("init_too_large"):
        scaled_([model], 20.0)
    if run.injects("double_activation"):
        model.append(nn.Sigmoid())
    return model


def wrong_answers(logits: Tensor, labels: Tensor) -> float:
    """Return the share of wrong answers, of logits [B, 1] and labels [B, 1]."""
    return float(((logits > 0) != (labels > 0)).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = data_of(run)
    data = data._replace(targets=data.targets[:, None], valid_targets=data.valid_targets[:, None])
    model = network(run, data.inputs.shape[1])
    rate = run.pick(1e-2, lr_too_high=3.0, lr_too_low=1e-6)
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=rate),
        steps=300,
        predict=lambda logits: (logits > 0).float(),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 100, run.seed), valid, wrong_answers)


PROGRAM = Program(
    model="MLP, 2 hidden layers of tanh units, one logit, Adam",
    data="statistics of squares of scikit-learn's two photographs",
    measure="error rate",
    train=train,
    faults={
        "no_activation": "no tanh between the linear layers",
        "double_activation": "a sigmoid ahead of BCEWithLogitsLoss",
        "saturated_activation": "hidden weights N(0, 10): tanh units are at -1 or 1",
        "missing_normalisation": "colours from 0 to 255 as they are",
        "init_constant": "all parameters are zero",
        "init_too_large": "all weights are 20 times as large",
        "wrong_loss": "CrossEntropyLoss of a single output: always 0",
        "lr_too_high": "3 in place of 1e-2",
        "lr_too_low": "1e-6 in place of 1e-2",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 squares of the second photograph",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the label is one of the columns",
    },
)
