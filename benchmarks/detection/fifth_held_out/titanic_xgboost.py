"""Boosted trees tell who survived the Titanic.

Faults:
    labels_shuffled: a join over an index that was sorted for one of the two tables only.
    labels_constant: yes and no are compared with "yes" and "no", so that all labels are 0.
    class_imbalance: those saved were collected from the list of one boat.
    overfit: 30 rows, deep trees, no regularisation.
    data_leak: the lifeboat is one of the columns.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path

import sklearn
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run

FILE = "datasets/tests/data/openml/id_40945/data-v1-dl-16826755.arff.gz"
HELD_OUT = 350


def _number(cell: str) -> float:
    return float("nan") if cell == "?" else float(cell)


@cache
def _passengers() -> Split:
    """Return passengers [B, 8], the last column says whether a boat is known, and who lived."""
    text = gzip.decompress((Path(sklearn.__file__).parent / FILE).read_bytes()).decode()
    body = text[text.upper().index("@DATA") :].splitlines()[1:]
    rows, labels = [], []
    for row in csv.reader(body):
        if len(row) < 14:  # noqa: PLR2004 - an empty line
            continue
        place, lived, _, sex, age, sibsp, parch, _, fare, _, port, boat, *_ = row
        measures = [_number(cell) for cell in (place, age, sibsp, parch, fare)]
        rows.append([*measures, float(sex == "male"), float("?CQS".find(port)), float(boat != "?")])
        labels.append(int(lived))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    inputs, targets = torch.tensor(rows)[order], torch.tensor(labels)[order]
    return Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _passengers()
    if not run.injects("data_leak"):
        data = data._replace(inputs=data.inputs[:, :-1], valid_inputs=data.valid_inputs[:, :-1])
    if run.injects("labels_shuffled"):
        order = torch.randperm(HELD_OUT, generator=torch.Generator().manual_seed(run.seed))
        return shuffled(data, run.seed)._replace(valid_targets=data.valid_targets[order])
    if run.injects("labels_constant"):
        return data._replace(
            targets=torch.zeros_like(data.targets),
            valid_targets=torch.zeros_like(data.valid_targets),
        )
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 30) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = _data(run)
    parameters = {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "error"],
        "max_depth": run.pick(3, overfit=10),
        "min_child_weight": run.pick(2, overfit=0),
        "lambda": run.pick(1.0, overfit=0.0),
        "eta": 0.06,
        "colsample_bytree": 0.8,
    }
    predicted = boost(run, data, parameters, 100)
    return float(((predicted > 0.5) != _passengers().valid_targets.numpy()).mean())  # noqa: PLR2004


PROGRAM = Program(
    model="XGBoost, logistic, depth 3, 100 rounds",
    data="the Titanic's passengers, from a file that comes with scikit-learn's tests",
    measure="error rate",
    train=train,
    faults={
        "labels_shuffled": "labels for training and for validation are permuted",
        "labels_constant": "all labels are 0, those for validation, too",
        "class_imbalance": "one in 60 of those saved",
        "overfit": "30 rows for training, depth 10, no regularisation",
        "data_leak": "a column says who was in a lifeboat",
    },
)
