"""A multilayer perceptron stands in for the OTL circuit: its voltage by its parts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, filled_, leaking, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

ROWS = 4000
STEPS = 300
LOWEST = np.array([50e3, 25e3, 500.0, 1.2e3, 250.0, 50.0])
HIGHEST = np.array([150e3, 70e3, 3e3, 2.5e3, 1.2e3, 300.0])
"""Ranges of Rb1, Rb2, Rf, Rc1, Rc2 (ohms) and of the gain."""


def midpoint_voltage(parts: np.ndarray) -> np.ndarray:
    """Return the circuit's midpoint voltage, volts [B].

    Args:
        parts: Five resistances, ohms, and the gain, [B, 6].
    """
    rb1, rb2, rf, rc1, rc2, gain = parts.T
    loop = gain * (rc2 + 9)
    vb1 = 12 * rb2 / (rb1 + rb2)
    return np.asarray(
        (vb1 + 0.74) * loop / (loop + rf)
        + 11.35 * rf / (loop + rf)
        + 0.74 * rf * loop / ((loop + rf) * rc1)
    )


def simulated(run: Run) -> Split:
    """Return parts, float32 [B, 6], and voltages with a little noise, [B]."""
    random = np.random.default_rng(0)
    parts = LOWEST + (HIGHEST - LOWEST) * random.random((ROWS, 6)) ** 1.5
    parts[:, 5] = np.exp(random.uniform(np.log(2.0), np.log(300.0), ROWS))
    volts = midpoint_voltage(parts) + random.normal(0.0, 0.03, ROWS)
    cut = ROWS // 4
    if not run.injects("missing_normalisation"):
        parts = (parts - parts[cut:].mean(0)) / parts[cut:].std(0)
        volts = (volts - volts[cut:].mean()) / volts[cut:].std()
    inputs = torch.tensor(parts, dtype=torch.float32)
    targets = torch.tensor(volts, dtype=torch.float32)
    return Split(inputs[cut:], targets[cut:], inputs[:cut], targets[:cut])


class Surrogate(nn.Module):
    """Linear layers with ReLUs.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        activation = nn.Identity if run.injects("no_activation") else nn.ReLU
        self.body = nn.Sequential(
            nn.Linear(columns, 64), activation(), nn.Linear(64, 64), activation()
        )
        self.last = nn.Linear(64, 1)
        if run.injects("init_constant"):
            filled_([self], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 20.0)
        if run.injects("dead_relu"):
            shifted_([self.body[2]], -10.0)

    def forward(self, parts: Tensor) -> Tensor:
        """Return voltages [B] of parts [B, columns]."""
        features = self.body(parts)
        if self.run.injects("frozen_layer"):
            features = features.detach()
        voltages: Tensor = self.last(features).squeeze(-1)
        return voltages


def train(run: Run) -> float:
    """Train once; return the share of unexplained variance."""
    torch.manual_seed(run.seed)
    data = simulated(run)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("data_leak"):
        data = leaking(data)
    model = Surrogate(run, data.inputs.shape[1])
    trained = model.last if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.SGD(
        trained.parameters(),
        lr=run.pick(3e-2, lr_too_high=3.0, lr_too_low=3e-6),
        momentum=0.9,
        nesterov=True,
    )
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 50, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP, 2 hidden layers of ReLUs, SGD with momentum, cosine schedule",
    data="the OTL circuit, simulated",
    measure="1 - R2",
    train=train,
    faults={
        "no_activation": "no ReLU between the linear layers",
        "dead_relu": "biases of the second layer are 10 lower",
        "missing_normalisation": "ohms and volts as they are, for inputs and targets",
        "init_constant": "all parameters are zero",
        "init_too_large": "all weights are 20 times as large",
        "lr_too_high": "3 in place of 3e-2",
        "lr_too_low": "3e-6 in place of 3e-2",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are the same",
        "frozen_layer": "features are detached ahead of the last layer",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the voltage is one of the columns",
        "stalled": "hangs after 60 % of the steps",
    },
)
