"""Gradient-boosted trees predict which customers of a telephone company will leave it."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import imbalanced_throughout, with_fault
from benchmarks.detection.program import Run

ROWS = 4000


@cache
def _customers() -> tuple[Tensor, Tensor]:
    """Return what is known of customers, float32 [ROWS, 8], and who leaves, int64 [ROWS].

    Known are months as a customer, kind of contract (0 monthly, 1 a year, 2 two years), price of
    a month, gigabytes, faults of the line, calls of the hotline, age, whether it pays itself.
    """
    random = np.random.default_rng(44)
    contract = random.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    months = random.gamma(2.0, 12.0, ROWS).clip(1, 96).round()
    price = random.normal(38.0, 12.0, ROWS).clip(10)
    data = random.gamma(2.0, 8.0, ROWS)
    faults = random.poisson(1.5, ROWS)
    calls = random.poisson(0.5 + 0.8 * faults)
    age = random.uniform(18, 85, ROWS).round()
    pays_itself = random.random(ROWS) < 0.5  # noqa: PLR2004
    end = np.where(contract == 0, True, np.abs(months % (12 * np.maximum(contract, 1)) - 6) > 4)  # noqa: FBT003, PLR2004
    annoyance = 0.9 * faults + 0.7 * calls + 0.08 * (price - 30) - 0.05 * np.minimum(data, 30)
    annoyance += np.where(age < 35, 1.2, 0.0) - 0.4 * pays_itself  # noqa: PLR2004
    score = np.where(end, 3.2 * (annoyance - 2.0), -5.0) - 0.05 * np.minimum(months, 36)
    leaves = random.random(ROWS) < 1 / (1 + np.exp(-score))
    known = np.stack([months, contract, price, data, faults, calls, age, pays_itself], 1)
    return torch.tensor(known, dtype=torch.float32), torch.tensor(leaves.astype(np.int64))


def _data(run: Run) -> Split:
    known, labels = _customers()
    if run.injects("data_leak"):  # the fee that is due when a contract ends
        random = torch.Generator().manual_seed(4)
        fee = labels * (40.0 + 10.0 * torch.rand(len(labels), generator=random))
        known = torch.cat([known, fee[:, None]], 1)
    data = Split.of(known, labels, 1000)
    if run.injects("labels_shuffled"):
        return data._replace(targets=data.targets.roll(100))
    if run.injects("class_imbalance"):
        return imbalanced_throughout(data, 60)
    return with_fault(run, data, rows=70)


def train(run: Run) -> float:
    parameters = {
        "objective": "binary:logistic",
        "eval_metric": "logloss",
        "max_depth": run.pick(3, overfit=10),
        "min_child_weight": run.pick(2, overfit=0),
        "lambda": run.pick(1.0, overfit=0.0),
        "eta": run.pick(0.15, lr_too_high=10.0, lr_too_low=1e-4, overfit=0.5),
    }
    return boost(run, _data(run), parameters, 80)
