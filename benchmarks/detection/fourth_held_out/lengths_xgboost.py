"""Boosted trees foretell how many lines a function has from what its syntax tree is made of.

Faults:
    lr_too_low: eta 1e-4 in place of 0.1.
    labels_shuffled: training targets are sorted by a join that inputs did not go through.
    data_leak: the number of lines is one of the columns.
    overfit: 40 rows, deep trees, no regularisation.
    stalled: the machine hangs.
"""

from __future__ import annotations

import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split, functions
from benchmarks.detection.injecting import few, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import unexplained

KINDS = 24
HELD_OUT = 270


def _data(run: Run) -> Split:
    nodes, lines, _ = functions(KINDS)
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(0))
    inputs, targets = nodes[order], lines[order].float()
    data = Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("data_leak"):
        return leaking(data)
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    data = _data(run)
    parameters = {
        "objective": "reg:squarederror",
        "max_depth": run.pick(3, overfit=12),
        "lambda": run.pick(1.0, overfit=0.0),
        "min_child_weight": run.pick(5, overfit=1),
        "eta": run.pick(0.1, lr_too_low=1e-4),
    }
    predicted = torch.tensor(boost(run, data, parameters, 32))
    return unexplained(predicted, data.valid_targets)


PROGRAM = Program(
    model="XGBoost, regression, depth 3, 32 rounds",
    data="nodes of the syntax trees of functions of Python's library, and their lines",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_low": "eta 1e-4 in place of 0.1",
        "labels_shuffled": "training targets are permuted",
        "data_leak": "the target is one of the columns",
        "overfit": "40 rows for training, depth 12, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
