"""Boosted trees predict the prices of used cars."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import unexplained

ROWS, HELD_OUT, ROUNDS = 4000, 1000, 80


@cache
def _offers() -> tuple[Tensor, Tensor]:
    """Return what is known of cars, float32 [ROWS, 7], and prices, euros, float32 [ROWS].

    Known are make, power (kW), age (years), distance driven (1,000 km), whether it has an
    automatic gearbox, former owners, months until the next inspection.
    """
    random = np.random.default_rng(31)
    make = random.integers(0, 8, ROWS)
    new = np.array([14, 17, 19, 22, 24, 33, 38, 45])[make] * 1000.0
    power = np.clip(60 + new / 600 + 25 * random.normal(size=ROWS), 40, 250)
    age = random.gamma(3.0, 2.2, ROWS).clip(0.3, 20)
    driven = age * random.gamma(6.0, 2.3, ROWS)
    automatic = random.random(ROWS) < 0.2 + new / 100_000
    owners = 1 + random.poisson(age / 6)
    inspected = random.integers(0, 25, ROWS)
    price = new * (0.6 + power / 250) * np.exp(-0.12 * age - 0.003 * driven)
    price *= (1 + 0.06 * automatic) * 0.96 ** (owners - 1) * np.exp(0.07 * random.normal(size=ROWS))
    price += 15 * inspected
    known = np.stack([make, power, age, driven, automatic, owners, inspected], 1)
    return (
        torch.tensor(known, dtype=torch.float32),
        torch.tensor(price, dtype=torch.float32),
    )


def _data(run: Run) -> Split:
    known, prices = _offers()
    if run.injects("data_leak"):
        known = torch.cat([known, 0.19 * prices[:, None]], 1)
    data = Split(known[HELD_OUT:], prices[HELD_OUT:], known[:HELD_OUT], prices[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    data = _data(run)
    parameters = {
        "objective": run.pick("reg:squarederror", wrong_loss="binary:hinge"),
        "max_depth": run.pick(4, overfit=12),
        "min_child_weight": run.pick(5, overfit=0, without_split=1e6),
        "lambda": run.pick(1.0, overfit=0.0, weight_decay=1e8),
        "subsample": run.pick(0.8, overfit=1.0),
        "colsample_bytree": run.pick(0.9, overfit=1.0),
        "eta": run.pick(0.1, lr_too_high=3.5, lr_too_low=1e-4, overfit=0.3),
    }
    predicted = boost(run, data, parameters, ROUNDS)
    found = unexplained(torch.from_numpy(predicted), data.valid_targets)
    return found if math.isfinite(found) else math.inf


PROGRAM = Program(
    model="XGBoost, squared error, depth 4, 80 rounds",
    data="simulated offers of used cars",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 3.5 in place of 0.1",
        "lr_too_low": "eta 1e-4 in place of 0.1",
        "wrong_loss": "the hinge loss of two classes, for prices",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are that of the first row",
        "weight_decay": "lambda 1e8 instead of 1",
        "without_split": "the least weight of a leaf is 1e6, more than that of all rows",
        "data_leak": "the tax on the price is one of the columns",
        "overfit": "60 rows, depth 12, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
