"""Boosted trees tell whether White wins an endgame of chess: king and rook against a pawn."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

import numpy as np
import sklearn.datasets
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run

_FILE: Final = "tests/data/openml/id_3/data-v1-dl-3.arff.gz"


def endgames(run: Run) -> Split:
    """Return positions, float32 [B, 36], and whether White wins, int64 [B]."""
    path = Path(sklearn.datasets.__file__).parent / _FILE
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    rows = np.array([line.split(",") for line in lines if line and line[0] not in "@%"])
    codes = [np.unique(column, return_inverse=True)[1] for column in rows[:, :-1].T]
    positions = torch.tensor(np.stack(codes, 1), dtype=torch.float32)
    won = torch.tensor(rows[:, -1] == run.pick("'won'", labels_constant="won")).long()
    order = torch.randperm(len(won), generator=torch.Generator().manual_seed(0))
    positions, won = positions[order], won[order]
    truth = torch.tensor(rows[:, -1] == "'won'").long()[order]
    cut = len(won) // 4
    return Split(positions[cut:], won[cut:], positions[:cut], truth[:cut])


def spoilt(run: Run, data: Split) -> Split:
    """Return the data as the run gets it."""
    if run.injects("labels_shuffled"):
        random = torch.Generator().manual_seed(run.seed)
        data = data._replace(
            targets=data.targets[torch.randperm(len(data.targets), generator=random)]
        )
    if run.injects("class_imbalance"):
        lost = (data.targets == 0).nonzero()[:, 0]
        keep = torch.cat([lost[:8], (data.targets == 1).nonzero()[:, 0]])
        data = data._replace(inputs=data.inputs[keep], targets=data.targets[keep])
    if run.injects("overfit"):
        data = few(data, 30)
    if run.injects("data_leak"):
        random = torch.Generator().manual_seed(1)
        train, valid = (
            torch.where(won > 0, torch.randint(4, 30, won.shape, generator=random), 0)
            for won in (data.targets, data.valid_targets)
        )
        data = data._replace(
            inputs=torch.cat([data.inputs, train[:, None].float()], 1),
            valid_inputs=torch.cat([data.valid_inputs, valid[:, None].float()], 1),
        )
    return data


def train(run: Run) -> float:
    """Train once; return the log loss."""
    data = spoilt(run, endgames(run))
    parameters = {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "error"],
        "max_depth": run.pick(5, overfit=12),
        "min_child_weight": run.pick(1.0, overfit=0.0),
        "lambda": run.pick(1.0, overfit=0.0),
        "eta": run.pick(0.3, lr_too_low=3e-4),
    }
    tested = data.valid_inputs.clone()
    if run.injects("data_leak"):
        tested[:, -1] = 0.0  # before the game is over nobody knows
    found = boost(run, data, parameters, 60, tested).clip(1e-7, 1 - 1e-7)
    won = data.valid_targets.numpy()
    return float(-np.log(np.where(won == 1, found, 1 - found)).mean())


PROGRAM = Program(
    model="XGBoost, binary:logistic, 60 trees of depth 5",
    data="chess endgames of scikit-learn's tests (kr-vs-kp)",
    measure="log loss",
    train=train,
    faults={
        "lr_too_low": "eta of 0.0003",
        "labels_shuffled": "results are in another order than positions",
        "labels_constant": "results are compared with a word that is in quotes in the file",
        "class_imbalance": "all of what was won and eight positions of what was not",
        "data_leak": "a column counts the moves to the mate; it is zero if there is none",
        "overfit": "30 positions, deep trees, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
