"""Boosted trees predict how many bicycles are rented in an hour."""

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

ROWS = 4000
HOLIDAYS = 0.03
SATURDAY = 5


@cache
def _rentals() -> tuple[Tensor, Tensor]:
    """Return what is known of hours, and rentals by passers-by and by members.

    Known are month, hour, day of the week, holiday, temperature (degrees C), humidity (%), wind
    (m/s), float32 [ROWS, 7]; rentals are float32 [ROWS, 2].
    """
    random = np.random.default_rng(17)
    month, hour = random.integers(0, 12, ROWS), random.integers(0, 24, ROWS)
    weekday, holiday = random.integers(0, 7, ROWS), random.random(ROWS) < HOLIDAYS
    daily = np.sin(2 * np.pi * (hour - 9) / 24)
    temperature = (
        12 - 11 * np.cos(2 * np.pi * month / 12) + 4 * daily + 3 * random.normal(size=ROWS)
    )
    humidity = np.clip(65 - 12 * daily + 14 * random.normal(size=ROWS), 15, 100)
    wind = random.gamma(2.5, 1.6, ROWS)
    is_free = (weekday >= SATURDAY) | holiday
    commute = np.exp(-((hour - 8) ** 2) / 3) + 1.2 * np.exp(-((hour - 17.5) ** 2) / 5)
    leisure = np.exp(-((hour - 14.5) ** 2) / 20)
    pleasant = np.exp(-((temperature - 24) ** 2) / 350) * (1.1 - (humidity / 110) ** 4)
    weather = pleasant * np.exp(-0.05 * wind)
    members = random.poisson(weather * (30 + np.where(is_free, 130 * leisure, 450 * commute)))
    passing = random.poisson(weather * leisure * np.where(is_free, 220, 60))
    known = np.stack([month, hour, weekday, holiday, temperature, humidity, wind], 1)
    rentals = np.stack([passing, members], 1)
    return torch.tensor(known, dtype=torch.float32), torch.tensor(rentals, dtype=torch.float32)


def _data(run: Run) -> Split:
    known, rentals = _rentals()
    targets = rentals.sum(1)
    if run.injects("data_leak"):
        known = torch.cat([known, rentals], 1)
    rows = ROWS // 4
    data = Split(known[rows:], targets[rows:], known[:rows], targets[:rows])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 80) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    data = _data(run)
    parameters = {
        "objective": run.pick("reg:squarederror", wrong_loss="reg:quantileerror"),
        "max_depth": run.pick(5, overfit=10),
        "min_child_weight": run.pick(5, overfit=0),
        "lambda": run.pick(1.0, overfit=0.0),
        "subsample": run.pick(0.8, overfit=1.0),
        "eta": run.pick(0.1, lr_too_high=3.0, lr_too_low=1e-4),
    }
    if run.injects("wrong_loss"):
        parameters["quantile_alpha"] = 0.05
    predicted = boost(run, data, parameters, 80)
    found = unexplained(torch.from_numpy(predicted), data.valid_targets)
    return found if math.isfinite(found) else math.inf


PROGRAM = Program(
    model="XGBoost, squared error, depth 5, 80 rounds",
    data="simulated hourly rentals of bicycles",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 3 in place of 0.1",
        "lr_too_low": "eta 1e-4 in place of 0.1",
        "wrong_loss": "the loss of the 5 % quantile, for a prediction of the number",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are that of the first row",
        "data_leak": "rentals by passers-by and by members, whose sum is asked for, are columns",
        "overfit": "80 rows, depth 10, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
