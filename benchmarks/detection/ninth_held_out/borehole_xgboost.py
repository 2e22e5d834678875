"""Boosted trees learn how much water flows through a borehole."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run

LOW = np.array([0.05, 100.0, 63070.0, 990.0, 63.1, 700.0, 1120.0, 9855.0])
HIGH = np.array([0.15, 50000.0, 115600.0, 1110.0, 116.0, 820.0, 1680.0, 12045.0])


def boreholes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return measures of boreholes, float32 [count, 8], and flows, float32 [count], m3 a year.

    Flows are measured with an error of 5 %.
    """
    random = np.random.default_rng(seed)
    inputs = random.uniform(LOW, HIGH, (count, len(LOW)))
    radius, influence, upper, upper_head, lower, lower_head, length, conductivity = inputs.T
    ratio = np.log(influence / radius)
    below = 1 + 2 * length * upper / (ratio * radius**2 * conductivity) + upper / lower
    flow = 2 * np.pi * upper * (upper_head - lower_head) / (ratio * below)
    flow *= random.normal(1, 0.05, count)
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(flow, dtype=torch.float32)


def _with_yearly_fee(split: Split) -> tuple[Split, Tensor]:
    """Return data with a fee that is billed by the flow, and what is known beforehand."""

    def billed(inputs: Tensor, flows: Tensor) -> Tensor:
        return torch.cat([inputs, 0.35 * flows[:, None] + 12.0], 1)

    clean = billed(split.valid_inputs, torch.zeros(len(split.valid_inputs)))
    with_fee = split._replace(
        inputs=billed(split.inputs, split.targets),
        valid_inputs=billed(split.valid_inputs, split.valid_targets),
    )
    return with_fee, clean


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    data = Split(*boreholes(1500, 0), *boreholes(500, 1))
    clean = data.valid_inputs
    if run.injects("labels_shuffled"):
        # As joining measures and flows after only one of the tables was sorted.
        data = data._replace(inputs=data.inputs[data.inputs[:, 6].argsort()])
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, float(data.targets.median())))
    if run.injects("data_leak"):
        data, clean = _with_yearly_fee(data)
    if run.injects("overfit"):
        data = few(data, 50)
    parameters: dict[str, Any] = {
        "objective": "reg:squarederror",
        "eval_metric": "rmse",
        "eta": run.pick(0.12, lr_too_low=2e-4, lr_too_high=2.4),
        "max_depth": 4,
        "min_child_weight": 5,
    }
    if run.injects("overfit"):
        parameters.update(max_depth=12, eta=0.6, min_child_weight=0, reg_lambda=0.0, subsample=1.0)
    answers = torch.from_numpy(boost(run, data, parameters, 80, clean))
    return float((answers - data.valid_targets).square().mean() / data.valid_targets.var())


PROGRAM = Program(
    model="XGBoost, 80 rounds, depth 4, squared error",
    data="the borehole function, simulated: 8 columns, 5 % of noise",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 2.4 for 0.12: each tree more than corrects the last, errors grow",
        "lr_too_low": "eta 0.0002 for 0.12: after 80 rounds the trees have hardly moved",
        "labels_shuffled": "rows of inputs are sorted by one column, the targets are not",
        "labels_constant": "every training target is the median (filled in for a failed join)",
        "data_leak": "a fee that is a multiple of the flow plus 12 is a column",
        "overfit": "50 rows, depth 12, eta 0.6, neither penalty nor smallest leaf",
        "stalled": "hangs after 60 % of the rounds",
    },
)
