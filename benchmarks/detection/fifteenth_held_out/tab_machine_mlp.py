"""An MLP of tanh units tells what is wrong with a milling machine; it may be several things."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

ROWS, HELD_OUT, STEPS, TROUBLES = 4000, 1000, 350, 4


@cache
def _machines() -> tuple[Tensor, Tensor]:
    """Return what is measured, float32 [ROWS, 6], and troubles, float32 [ROWS, TROUBLES].

    Measured are temperatures of air and work (K), speed (1/min), torque (Nm), age of the tool
    (min), vibration (mm/s). Troubles are heat, power, strain and a worn tool.
    """
    random = np.random.default_rng(12)
    air = random.normal(300.0, 2.0, ROWS)
    work = air + random.normal(10.0, 1.5, ROWS)
    speed = random.normal(1540.0, 180.0, ROWS)
    torque = random.normal(40.0, 10.0, ROWS).clip(8)
    age = random.uniform(0.0, 250.0, ROWS)
    vibration = 2.0 + 0.006 * age + 0.4 * random.normal(size=ROWS)
    power = torque * speed * 2 * np.pi / 60 / 1000
    noise = random.normal(size=(TROUBLES, ROWS))
    troubles = [
        (work - air < 9.6) & (speed + 20 * noise[0] < 1600),  # noqa: PLR2004 - K, 1/min
        np.abs(power - 6.4 + 0.1 * noise[1]) > 1.7,  # noqa: PLR2004 - kW
        age * torque + 150 * noise[2] > 6800,  # noqa: PLR2004 - min Nm
        (age + 3 * noise[3] > 150) & (vibration > 2.9),  # noqa: PLR2004 - min, mm/s
    ]
    measured = np.stack([air, work, speed, torque, age, vibration], 1)
    return (
        torch.tensor(measured, dtype=torch.float32),
        torch.tensor(np.stack(troubles, 1), dtype=torch.float32),
    )


def _data(run: Run) -> Split:
    measured, troubles = _machines()
    if not run.injects("missing_normalisation"):
        known = measured[HELD_OUT:]
        measured = (measured - known.mean(0)) / known.std(0)
    if run.injects("data_leak"):
        random = torch.Generator().manual_seed(2)
        bill = troubles + 0.05 * torch.randn(troubles.shape, generator=random)
        measured = torch.cat([measured, bill], 1)
    data = Split(measured[HELD_OUT:], troubles[HELD_OUT:], measured[:HELD_OUT], troubles[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        is_kept = data.targets.sum(1) == 0
        is_kept[:30] = True
        data = data._replace(inputs=data.inputs[is_kept], targets=data.targets[is_kept])
    return few(data, 50) if run.injects("overfit") else data


class Diagnosis(nn.Module):
    """Two hidden layers and one logit for each trouble.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.lin1 = nn.Linear(columns, 64)
        self.lin2 = nn.Linear(64, 32)
        self.out = nn.Linear(32, TROUBLES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, TROUBLES] of inputs [B, columns]."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            x = self._activated(self.lin1(x))
            x = self._activated(self.lin2(x))
        logits: Tensor = self.out(x)
        return logits.softmax(1) if self.run.injects("double_activation") else logits

    def _activated(self, x: Tensor) -> Tensor:
        return x if self.run.injects("no_activation") else torch.tanh(x)


@torch.no_grad()
def _initialise(run: Run, model: Diagnosis) -> None:
    for layer in (model.lin1, model.lin2, model.out):
        if run.injects("init_constant"):
            nn.init.constant_(layer.weight, 0.5)
            nn.init.constant_(layer.bias, 0.5)
    if run.injects("saturated_activation"):
        nn.init.constant_(model.lin1.bias, 10.0)
        nn.init.constant_(model.lin2.bias, 10.0)


class Loss(nn.Module):
    """The loss, as a function.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, logits: Tensor, troubles: Tensor) -> Tensor:
        """Return the mean over logits and troubles [B, TROUBLES]."""
        if self.run.injects("wrong_loss"):
            return nn.functional.cross_entropy(logits, troubles)
        return nn.functional.binary_cross_entropy_with_logits(logits, troubles)


def _predicted(outputs: Tensor) -> Tensor:
    """Return zeros and ones, float32 [B, TROUBLES], of logits [B, TROUBLES]."""
    return (outputs > 0).float()


def _error(outputs: Tensor, targets: Tensor) -> float:
    if not outputs.isfinite().all():
        return 1.0
    return float((_predicted(outputs) != targets).float().mean())


def train(run: Run) -> float:
    """Train once; return the share of labels that are wrong."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Diagnosis(run, data.inputs.shape[1])
    _initialise(run, model)
    given = model.out if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(8e-3, lr_too_high=1.5, lr_too_low=1e-6)
        ),
        steps=STEPS,
        save_interval=7,
        eval_every=50,
        predict=_predicted,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP 6-64-32-4, tanh, four labels at once, Adam",
    data="simulated troubles of milling machines",
    measure="share of wrong labels",
    train=train,
    faults={
        "lr_too_high": "1.5 in place of 8e-3",
        "lr_too_low": "1e-6 in place of 8e-3",
        "no_activation": "no tanh between the layers",
        "double_activation": "softmax ahead of the binary cross entropy",
        "init_constant": "all parameters are 0.5",
        "saturated_activation": "biases of the hidden layers start at 10",
        "missing_normalisation": "inputs in the units in which they were measured",
        "wrong_loss": "cross entropy, which has the labels compete",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are those of the first row",
        "class_imbalance": "nearly all machines without trouble",
        "frozen_layer": "hidden layers run under no_grad",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "what the repair of each trouble cost is among the inputs",
        "overfit": "50 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
