"""Gradient-boosted trees predict the prices of used cars."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import with_fault
from benchmarks.detection.program import Run

ROWS = 4000


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
    return torch.tensor(known, dtype=torch.float32), torch.tensor(price, dtype=torch.float32)


def _data(run: Run) -> Split:
    known, prices = _offers()
    if run.injects("data_leak"):  # the tax on the price
        known = torch.cat([known, 0.19 * prices[:, None]], 1)
    return with_fault(run, Split.of(known, prices, 1000), rows=60)


def train(run: Run) -> float:
    parameters = {
        "objective": run.pick("reg:squarederror", wrong_loss="binary:hinge"),
        "max_depth": run.pick(4, overfit=12),
        "min_child_weight": run.pick(5, overfit=0, without_split=1e6),
        "lambda": run.pick(1.0, overfit=0.0, weight_decay=1e8),
        "subsample": run.pick(0.8, overfit=1.0),
        "colsample_bytree": run.pick(0.9, overfit=1.0),
        "eta": run.pick(0.1, lr_too_high=3.5, lr_too_low=1e-4, overfit=0.3),
    }
    return boost(run, _data(run), parameters, 80)
