"""An MLP of tanh units finds what is wrong with a milling machine; it may be several things."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, standardised
from benchmarks.detection.injecting import filled_, gradients_unless_frozen, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Functional, Loop, batches_of, fit, is_positive

ROWS, HELD_OUT, TROUBLES = 4000, 1000, 4


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
        measured = standardised(measured, HELD_OUT)
    if run.injects("data_leak"):  # what the repair of each trouble cost
        random = torch.Generator().manual_seed(2)
        bill = troubles + 0.05 * torch.randn(troubles.shape, generator=random)
        measured = torch.cat([measured, bill], 1)
    data = Split.of(measured, troubles, HELD_OUT)
    if run.injects("class_imbalance"):  # nearly all machines are without trouble
        is_kept = data.targets.sum(1) == 0
        is_kept[:30] = True
        return data._replace(inputs=data.inputs[is_kept], targets=data.targets[is_kept])
    return with_fault(run, data, rows=50)


class Diagnosis(nn.Module):
    """Two hidden layers and one logit for each trouble."""

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.lin1 = nn.Linear(columns, 64)
        self.lin2 = nn.Linear(64, 32)
        self.out = nn.Linear(32, TROUBLES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, TROUBLES] of inputs [B, columns]."""
        with gradients_unless_frozen(self.run):
            for layer in (self.lin1, self.lin2):
                x = layer(x) if self.run.injects("no_activation") else torch.tanh(layer(x))
        logits: Tensor = self.out(x)
        return logits.softmax(1) if self.run.injects("double_activation") else logits


def train(run: Run) -> float:
    """Train once."""
    data = _data(run)
    model = Diagnosis(run, data.inputs.shape[1])
    if run.injects("init_constant"):
        filled_([model], 0.5)
    if run.injects("saturated_activation"):
        nn.init.constant_(model.lin1.bias, 10.0)
        nn.init.constant_(model.lin2.bias, 10.0)
    trained = run.pick(model, optimiser_missing_parameters=model.out)
    rate = run.pick(8e-3, lr_too_high=1.5, lr_too_low=1e-6)
    usual, wrong = functional.binary_cross_entropy_with_logits, functional.cross_entropy
    loop = Loop(
        model=model,
        criterion=Functional(run.pick(usual, wrong_loss=wrong)),
        optimizer=torch.optim.Adam(trained.parameters(), rate),
        steps=350,
        save_interval=7,
        predict=is_positive,
        is_functional=True,
    )
    return fit(run, loop, batches_of(data, 64, run.seed), data.validation())
