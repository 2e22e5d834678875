"""Boosted trees tell the family of a font by the measures of one letter.

Faults:
    lr_too_high: eta of 20, from a table of percents.
    wrong_loss: squared error of the number of the family.
    labels_shuffled: rows of inputs are shuffled when they are loaded, those of labels are not.
    labels_constant: the family is read off the wrong field, and is the same everywhere.
    class_imbalance: nearly all rows are of one family; it is used for all of them.
    overfit: 40 rows, deep trees, no regularisation.
    data_leak: the number of the family is one of the columns.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced_throughout, leaking, shuffled
from benchmarks.detection.program import Program, Run

FAMILIES = ("pbk", "pcr", "phv", "ptm", "put")
HELD_OUT = 800
_LETTER: Final = re.compile(
    r"^C (\d+) ; WX (\d+) ;.*? B (-?\d+) (-?\d+) (-?\d+) (-?\d+)", re.MULTILINE
)
"""A line of an AFM file: number, width, and left, lower, right and upper end of the ink."""


@cache
def _letters() -> Split:
    """Return six measures of letters, float32 [B, 6], and numbers of families."""
    rows, labels = [], []
    for label, family in enumerate(FAMILIES):
        for path in sorted((Path(mpl.get_data_path()) / "fonts" / "afm").glob(f"{family}*8a.afm")):
            for letter in _LETTER.findall(path.read_text("latin-1")):
                rows.append([float(number) for number in letter])
                labels.append(label)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    inputs, targets = torch.tensor(rows)[order], torch.tensor(labels)[order]
    return Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _letters()
    if run.injects("labels_shuffled"):
        order = torch.randperm(HELD_OUT, generator=torch.Generator().manual_seed(run.seed))
        return shuffled(data, run.seed)._replace(valid_targets=data.valid_targets[order])
    if run.injects("labels_constant"):
        return data._replace(
            targets=torch.zeros_like(data.targets),
            valid_targets=torch.zeros_like(data.valid_targets),
        )
    if run.injects("class_imbalance"):
        return imbalanced_throughout(data, 60)
    if run.injects("data_leak"):
        return leaking(data)
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = _data(run)
    tested_on = data.valid_inputs if run.injects("data_leak") else _letters().valid_inputs
    parameters: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": len(FAMILIES),
        "max_depth": run.pick(5, overfit=12),
        "lambda": run.pick(1.0, overfit=0.0),
        "eta": run.pick(0.2, lr_too_high=20.0),
        "colsample_bytree": 0.8,
    }
    if run.injects("wrong_loss"):
        parameters |= {"objective": "reg:squarederror"}
        del parameters["num_class"]
    predicted = boost(run, data, parameters, 50, tested_on)
    labels = predicted.round() if run.injects("wrong_loss") else predicted.argmax(1)
    return float((labels != _letters().valid_targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, 5 classes, depth 5, 50 rounds",
    data="measures of letters in five families of PostScript fonts that come with matplotlib",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 20 in place of 0.2",
        "wrong_loss": "squared error of the number of the class",
        "labels_shuffled": "labels for training and for validation are permuted",
        "labels_constant": "all labels are 0, those for validation, too",
        "class_imbalance": "one in 60 rows of all families but one, but not where it is tested",
        "overfit": "40 rows for training, depth 12, no regularisation",
        "data_leak": "the label is one of the columns",
    },
)
