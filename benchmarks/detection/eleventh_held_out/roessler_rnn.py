"""A recurrent network forecasts one coordinate of Roessler's system."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy.integrate import solve_ivp  # type: ignore[import-untyped]
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_SEEN, _AHEAD, _WIDTH, _STEP = 20, 8, 24, 0.25


class Net(nn.Module):
    """A recurrent layer, and one number of its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        explodes = run.injects("exploding_rnn")
        width = run.pick(_WIDTH, overfit=2 * _WIDTH)
        self.rnn = nn.RNN(1, width, nonlinearity="relu" if explodes else "tanh", batch_first=True)
        self.head = nn.Linear(width, 1)
        if explodes:
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("weight"):
                    nn.init.normal_(parameter, std=3 / width**0.5)
        if run.injects("saturated_activation"):
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("bias"):
                    nn.init.constant_(parameter, 7.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.zeros_(parameter)

    def forward(self, values: Tensor) -> Tensor:
        """Return the value to come [B] of values [B, steps]."""
        states, _ = self.rnn(values.unsqueeze(2))
        last = states[:, -1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        found: Tensor = self.head(last).squeeze(1)
        return found


@cache
def _series() -> Tensor:
    """Return the coordinate x with some noise, float32 [steps]."""

    def change(_: float, state: np.ndarray) -> list[float]:
        x, y, z = state
        return [-y - z, x + 0.2 * y, 0.2 + z * (x - 5.7)]

    times = np.arange(0, 1000, _STEP)
    found = solve_ivp(change, (0, 1000), [1.0, 1.0, 1.0], t_eval=times, rtol=1e-6)
    noise = np.random.default_rng(3).normal(0, 0.3, len(times))
    return torch.tensor(found.y[0] + noise, dtype=torch.float32)[200:]


def _data(run: Run) -> Split:
    series = _series()
    if run.injects("missing_normalisation"):
        series = (40 * series + 2048).round()  # as the converter of 12 bits gave it
    else:
        series = (series - series.mean()) / series.std()
    windows = series.unfold(0, _SEEN + _AHEAD, 1)
    inputs = windows[:, _AHEAD:] if run.injects("data_leak") else windows[:, :_SEEN]
    targets = windows[:, -1]
    held_out = len(inputs) // 5
    data = Split(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out])
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("overfit"):
        data = few(data, 12)
    return data


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs, targets) if outputs.isfinite().all() else 1e9


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.PoissonNLLLoss() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=torch.optim.RMSprop(
            model.parameters(), lr=run.pick(3e-3, lr_too_low=3e-6, lr_too_high=1.0)
        ),
        steps=320,
        save_interval=8,
        eval_every=32,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 48, run.seed), valid, _error)


PROGRAM = Program(
    model="RNN with tanh, MSELoss, RMSprop, clipped gradients",
    data="Roessler's system with noise: 20 values, and the eighth after them",
    measure="unexplained share of the variance",
    train=train,
    faults={
        "lr_too_low": "3e-6 with RMSprop, a thousandth of what is needed",
        "lr_too_high": "1 with RMSprop, 300 times what is needed",
        "missing_normalisation": "values and targets as a converter of 12 bits gives them, about "
        "2,048",
        "wrong_loss": "PoissonNLLLoss, for counts, of values of both signs",
        "frozen_layer": "the last state is detached: the recurrent layer is never trained",
        "saturated_activation": "both biases of the recurrent layer start at 7: tanh is flat there",
        "exploding_rnn": "ReLU instead of tanh, recurrent weights of three times the norm that "
        "keeps a state as large as it is, no clipping",
        "init_constant": "all weights and biases start at 0",
        "labels_constant": "every training target is that of the first window",
        "data_leak": "the window ends with the value that is asked for",
        "overfit": "12 windows, twice the units",
    },
)
