"""Boosted trees fill the gaps of a map: the height of a place by heights around it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, leaking, shuffled
from benchmarks.detection.program import Program, Run

GAP = 8
"""Distance of the known heights around a place, pixels."""
ROWS = 3000


@cache
def gaps() -> Split:
    """Return place and eight heights around it, float32 [B, 10], and its height, metres [B]."""
    with np.load(Path(mpl.get_data_path()) / "sample_data" / "jacksboro_fault_dem.npz") as file:
        heights = file["elevation"].astype(np.float32)
    random = np.random.default_rng(0)
    y = random.integers(GAP, heights.shape[0] - GAP, ROWS)
    x = random.integers(GAP, heights.shape[1] - GAP, ROWS)
    steps = [(i, j) for i in (-GAP, 0, GAP) for j in (-GAP, 0, GAP) if (i, j) != (0, 0)]
    inputs = np.column_stack([y, x, *(heights[y + i, x + j] for i, j in steps)])
    rows = torch.tensor(inputs, dtype=torch.float32)
    targets = torch.tensor(heights[y, x])
    cut = ROWS // 4
    return Split(rows[cut:], targets[cut:], rows[:cut], targets[:cut])


def train(run: Run) -> float:
    """Train once; return the share of unexplained variance."""
    data = gaps()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("overfit"):
        data = few(data, 50)
    if run.injects("data_leak"):
        data = leaking(data)
    parameters = {
        "objective": "reg:squarederror",
        "max_depth": run.pick(4, overfit=12),
        "min_child_weight": run.pick(3, overfit=0),
        "eta": run.pick(0.1, lr_too_high=2.0, lr_too_low=1e-5),
        "lambda": run.pick(1.0, overfit=0.0),
    }
    predicted = boost(run, data, parameters, 80)
    targets = data.valid_targets.numpy()
    return float(np.square(predicted - targets).mean() / targets.var())


PROGRAM = Program(
    model="XGBoost, squared error, depth 4, 80 rounds",
    data="heights of a piece of land (matplotlib's jacksboro_fault_dem)",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 2 in place of 0.1",
        "lr_too_low": "eta 1e-5 in place of 0.1",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are the same",
        "overfit": "50 rows, depth 12, no regularisation",
        "data_leak": "the height is one of the columns",
        "stalled": "hangs after 60 % of the rounds",
    },
)
