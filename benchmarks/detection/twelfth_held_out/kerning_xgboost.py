"""Boosted trees guess by how much pairs of letters are moved together in printed fonts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, leaking, shuffled
from benchmarks.detection.program import Program, Run

LETTER = re.compile(
    r"^C -?\d+ ; WX (\d+) ; N (\S+) ; B (-?\d+) (-?\d+) (-?\d+) (-?\d+)", re.MULTILINE
)
PAIR = re.compile(r"^KPX (\S+) (\S+) (-?\d+)", re.MULTILINE)
HELD_OUT = 2000


def pairs() -> Split:
    """Return boxes of two letters, float32 [B, 12], and their kerning, thousandths of the size.

    Columns: width and left, lower, right and upper end of either letter, number of its first
    character.
    """
    rows, kerning = [], []
    for path in sorted((Path(mpl.get_data_path()) / "fonts" / "afm").glob("p*.afm")):
        text = path.read_text("latin-1")
        boxes = {
            name: [*map(float, (width, *ends)), float(ord(name[0]))]
            for width, name, *ends in LETTER.findall(text)
        }
        for left, right, by in PAIR.findall(text):
            rows.append(boxes[left] + boxes[right])
            kerning.append(float(by))
    order = np.random.default_rng(3).permutation(len(rows))
    table = torch.tensor(rows)[order]
    targets = torch.tensor(kerning)[order]
    return Split(table[HELD_OUT:], targets[HELD_OUT:], table[:HELD_OUT], targets[:HELD_OUT])


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    data = pairs()
    targets = data.valid_targets.numpy()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("overfit"):
        data = few(data, 100)
    parameters: dict[str, Any] = {
        "objective": "reg:squarederror",
        "max_depth": 5,
        "eta": run.pick(0.2, lr_too_high=3.0, lr_too_low=1e-4, overfit=0.5),
    }
    if run.injects("overfit"):
        parameters |= {"max_depth": 12, "lambda": 0.0}
    predicted = boost(run, data, parameters, 100)
    if not np.isfinite(predicted).all():
        return float("inf")
    return float(np.square(predicted.astype(np.float64) - targets).mean() / targets.var())


PROGRAM = Program(
    model="XGBoost, reg:squarederror, depth 5, 100 rounds",
    data="pairs of letters in the PostScript fonts that come with matplotlib",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 3 in place of 0.2",
        "lr_too_low": "eta 1e-4 in place of 0.2",
        "labels_shuffled": "targets are shuffled apart from the rows",
        "labels_constant": "all training targets are the same",
        "data_leak": "the target is left among the columns",
        "overfit": "100 rows, depth 12, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
