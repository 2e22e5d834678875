"""Boosted trees tell which loans are not paid back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced_throughout, leaking, shuffled
from benchmarks.detection.program import Program, Run

COUNT = 4000
HELD_OUT = 1000


def loans() -> Split:
    """Return loans [B, 9] and whether they fail, int64 [B]: one in two of those that are kept.

    Columns: income, amount, months, age, years of work, past delays, rate, debts, kind of home.
    """
    random = np.random.default_rng(21)
    income = random.lognormal(10.4, 0.5, COUNT)
    amount = random.uniform(1_000, 40_000, COUNT)
    months = random.choice([12, 24, 36, 48, 60], COUNT)
    age = random.uniform(20, 70, COUNT)
    work = np.clip(random.exponential(6, COUNT), 0, age - 18)
    delays = random.poisson(0.7, COUNT)
    rate = 4 + 1.5 * delays + random.normal(0, 1.5, COUNT)
    debts = income * random.beta(2, 5, COUNT)
    home = random.integers(3, size=COUNT)
    burden = (12 * amount / months + 0.4 * debts) / income
    risk = 9 * (burden - 0.6) + 1.2 * (delays - 0.7) + 2.5 * (work < 2) - 1.5 * (home == 0)  # noqa: PLR2004
    risk += 1.5 * ((age < 27) & (amount > 20_000))  # noqa: PLR2004
    fails = (risk - np.median(risk) + random.logistic(0, 0.5, COUNT) > 0).astype(np.int64)
    columns = (income, amount, months, age, work, delays, rate, debts, home)
    table = torch.tensor(np.stack(columns, 1), dtype=torch.float32)
    targets = torch.tensor(fails)
    return Split(table[HELD_OUT:], targets[HELD_OUT:], table[:HELD_OUT], targets[:HELD_OUT])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = loans()
    tested_on, targets = data.valid_inputs, data.valid_targets
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced_throughout(data, 60)
    if run.injects("data_leak"):
        data = leaking(data)
        tested_on = data.valid_inputs
    if run.injects("overfit"):
        data = few(data, 150)
    parameters: dict[str, Any] = {
        "objective": "binary:logistic",
        "max_depth": 3,
        "eta": run.pick(0.15, lr_too_high=15.0, lr_too_low=1e-5, overfit=0.5),
        "colsample_bytree": 0.8,
    }
    if run.injects("overfit"):
        parameters |= {"max_depth": 12, "lambda": 0.0, "min_child_weight": 0.0}
    if run.injects("wrong_loss"):
        parameters["scale_pos_weight"] = 100.0
    predicted = boost(run, data, parameters, 80, tested_on)
    return float(((predicted > 0.5) != targets.numpy()).mean())  # noqa: PLR2004


PROGRAM = Program(
    model="XGBoost, binary:logistic, depth 3, 80 rounds",
    data="loans and who does not pay them back, simulated",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "eta 15 in place of 0.15",
        "lr_too_low": "eta 1e-5 in place of 0.15",
        "wrong_loss": "scale_pos_weight 100 is left from another task: both classes are as large",
        "labels_shuffled": "labels are shuffled apart from the rows",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 of the failing ones, but not where it is tested",
        "data_leak": "a column is known only after the loan failed",
        "overfit": "150 rows, depth 12, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
