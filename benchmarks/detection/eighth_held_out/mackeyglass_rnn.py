"""A recurrent network of tanh units goes on with the Mackey-Glass series."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

LENGTH, AHEAD, WIDTH = 24, 6, 24


def series() -> Tensor:
    """Return the Mackey-Glass series of delay 17, one value a time unit, float32 [3000]."""
    values = [1.2 for _ in range(171)]
    for _ in range(32_000):
        last, late = values[-1], values[-171]
        values.append(last + 0.1 * (0.2 * late / (1 + late**10) - 0.1 * last))
    return torch.tensor(values[2000::10][:3000])


def pieces(values: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    """Return windows [B, LENGTH, 1] and the value so many steps after each, [B]."""
    windows = values.unfold(0, LENGTH + AHEAD, 1)
    return windows[:, :LENGTH, None], windows[:, LENGTH - 1 + ahead]


class Net(nn.Module):
    """One recurrent layer, step by step, and a linear one on its last state."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.enter = nn.Linear(1, WIDTH)
        self.again = nn.Linear(WIDTH, WIDTH, bias=False)
        self.tanh = nn.Tanh()
        self.head = nn.Linear(WIDTH, 1)
        nn.init.orthogonal_(self.again.weight)
        if run.injects("exploding_rnn"):
            nn.init.normal_(self.again.weight, std=0.6)
        if run.injects("saturated_activation"):
            nn.init.normal_(self.enter.weight, std=10.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the value to come [B], scaled, of windows [B, length, 1]."""
        state = x.new_zeros(len(x), WIDTH)
        for now in x.unbind(1):
            inner = self.enter(now) + self.again(state)
            state = inner if self.run.injects("exploding_rnn") else self.tanh(inner)
        if self.run.injects("frozen_layer"):
            state = torch.tensor(state.detach().numpy())
        out: Tensor = self.head(state)
        return out[:, 0]


def _data(run: Run) -> Split:
    values = series()
    train, valid = values[:2200], values[2200:]
    if not run.injects("missing_normalisation"):
        mean, std = train.mean(), train.std()
        train, valid = (train - mean) / std, (valid - mean) / std
    else:
        train, valid = 1000 * train, 1000 * valid
    # With the target not shifted, the last value of the window is what is asked for.
    ahead = run.pick(AHEAD, data_leak=0)
    return Split(*pieces(train, ahead), *pieces(valid, ahead))


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.SmoothL1Loss(),
        optimizer=torch.optim.RMSprop(
            model.parameters(), lr=run.pick(1e-3, lr_too_high=0.3, lr_too_low=1e-6)
        ),
        steps=300,
        eval_every=50,
        clip=run.pick(1.0, exploding_rnn=None),
    )
    valid = [
        (data.valid_inputs[rows : rows + 256], data.valid_targets[rows : rows + 256])
        for rows in range(0, len(data.valid_targets), 256)
    ]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="Recurrent network of tanh units, written by hand, RMSprop, clipped gradients",
    data="the Mackey-Glass series, six steps ahead",
    measure="1 - R2",
    train=train,
    faults={
        "exploding_rnn": "no tanh, recurrent weights of spectral radius 3, no clipping",
        "lr_too_high": "learning rate 0.3 instead of 1e-3",
        "lr_too_low": "learning rate 1e-6 instead of 1e-3, 1,000 times too low",
        "saturated_activation": "input weights of standard deviation 10: tanh is flat",
        "init_constant": "every weight and bias begins at 0.1, so that all units are the same",
        "frozen_layer": "the last state goes through numpy and back, which cuts the gradient",
        "missing_normalisation": "the series is taken in thousandths, some 400 to 1,300, unscaled",
        "data_leak": "the target is not shifted: it is the last value of the window",
        "stalled": "hangs after 60 % of the steps",
    },
)
