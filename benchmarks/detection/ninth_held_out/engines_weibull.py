"""A multilayer perceptron learns how long engines live, from data that is censored."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

UNITS = np.array([600.0, 35.0, 9000.0, 1.5, 520.0, 0.02])
MEANS = np.array([2400.0, 550.0, 23000.0, 11.0, 640.0, 0.3])


def engines(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return measures of engines, float32 [count, 6] of variance 1, and how long they ran.

    The second is float32 [count, 2]: time (years) and 1 if the engine failed then, 0 if it was
    still running.
    """
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, len(UNITS)))
    strain = 0.7 * x[:, 0] + 1.1 * x[:, 1] * x[:, 2] - 1.0 * np.abs(x[:, 3]) + 0.4 * x[:, 4]
    life = 3 * np.exp(-0.6 * strain) * random.weibull(2.2, count)
    until = random.uniform(1.0, 9.0, count)
    ran = np.stack([np.minimum(life, until), life <= until], 1)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(ran, dtype=torch.float32)


class Censored(nn.Module):
    """Minus the logarithm of the likelihood of Weibull's distribution, where some still run.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, ran: Tensor) -> Tensor:
        """Return the mean over logarithms of scale and shape [B, 2] and times and ends [B, 2]."""
        scale, shape = outputs[:, 0], outputs[:, 1].exp()
        time, failed = ran[:, 0], ran[:, 1]
        apart = time.clamp(min=1e-3).log() - scale
        hazard = outputs[:, 1] - scale + (shape - 1) * apart
        if self.run.injects("wrong_loss"):
            return -(failed * hazard).mean()
        return ((shape * apart).clamp(max=30).exp() - failed * hazard).mean()


def disordered(outputs: Tensor, ran: Tensor) -> float:
    """Return the share of pairs of which the one predicted to fail first did not; 1 - C."""
    if not outputs.isfinite().all():
        return 1.0
    scale, time, failed = outputs[:, 0], ran[:, 0], ran[:, 1]
    known = (time[:, None] < time) & (failed[:, None] == 1)
    wrong = (scale[:, None] > scale).float() + 0.5 * (scale[:, None] == scale).float()
    return float(wrong[known].mean())


def _model(run: Run, columns: int) -> nn.Sequential:
    def activation() -> nn.Module:
        return nn.Identity() if run.injects("no_activation") else nn.ReLU()

    first, second, last = nn.Linear(columns, 40), nn.Linear(40, 40), nn.Linear(40, 2)
    with torch.no_grad():
        last.weight.mul_(0.3)
    if run.injects("dead_relu"):
        shifted_([second], -25.0)
    if run.injects("init_constant"):
        filled_([first, second, last], 0.0)
    return nn.Sequential(first, activation(), second, activation(), last)


def _data(run: Run) -> Split:
    data = Split(*engines(2400, 0), *engines(600, 1))
    if run.injects("missing_normalisation"):
        units, means = torch.tensor(UNITS).float(), torch.tensor(MEANS).float()
        data = data._replace(
            inputs=data.inputs * units + means, valid_inputs=data.valid_inputs * units + means
        )
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("data_leak"):
        # The hour meter was read when the record was closed, not when the engine was inspected.
        data = data._replace(
            inputs=torch.cat([data.inputs, data.targets[:, :1].log()], 1),
            valid_inputs=torch.cat([data.valid_inputs, data.valid_targets[:, :1].log()], 1),
        )
    return few(data, 50) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return 1 - C, the share of pairs in the wrong order."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run, data.inputs.shape[1])
    optimizer = torch.optim.Adam(
        model.parameters(), lr=run.pick(2e-3, lr_too_high=1.0, lr_too_low=1e-7)
    )
    loop = Loop(
        model=model,
        criterion=Censored(run),
        optimizer=optimizer,
        steps=260,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.992),
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, disordered)


PROGRAM = Program(
    model="MLP, ReLU, Weibull's likelihood with censoring by hand, Adam",
    data="lives of engines, simulated",
    measure="1 - C",
    train=train,
    faults={
        "no_activation": "no activation between the three linear layers",
        "dead_relu": "biases of the second layer start at -25: its ReLUs never fire",
        "init_constant": "all parameters are zero",
        "missing_normalisation": "columns are as measured, from 0.3 to 23,000",
        "labels_shuffled": "times are those of other engines",
        "data_leak": "the logarithm of the time is a column",
        "lr_too_high": "learning rate 1 for 0.002",
        "wrong_loss": "only the hazard of failures, without how likely survival was: no bound",
        "overfit": "50 engines",
    },
)
