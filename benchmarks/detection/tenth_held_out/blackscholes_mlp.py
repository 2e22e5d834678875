"""A network of tanh units learns prices of options from the model of Black and Scholes."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, filled_, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

ROWS = 2400


class Net(nn.Module):
    """Two hidden layers of tanh, and softplus at the end, as prices are positive.

    Args:
        run: What is injected.
        columns: How many columns inputs have.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.fc1, self.fc2, self.out = nn.Linear(columns, 40), nn.Linear(40, 40), nn.Linear(40, 1)
        of_units = nn.Identity if run.injects("no_activation") else nn.Tanh
        self.tanh1, self.tanh2 = of_units(), of_units()
        self.softplus = nn.Softplus()
        if run.injects("init_constant"):
            filled_([self.fc1, self.fc2], 0.0)
        if run.injects("saturated_activation"):
            scaled_([self.fc1, self.fc2], 100.0)

    def forward(self, options: Tensor) -> Tensor:
        """Return prices [B, 1] of options [B, columns]."""
        x = self.fc2(self.tanh1(self.fc1(options)))
        if self.run.injects("frozen_layer"):
            x = x.data
        price: Tensor = self.softplus(self.out(self.tanh2(x)))
        return self.softplus(price) if self.run.injects("double_activation") else price


class Miss(nn.Module):
    """How far prices are off.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, prices: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over prices [B, 1]."""
        if self.run.injects("wrong_loss"):
            return F.binary_cross_entropy_with_logits(prices, targets)
        return F.huber_loss(prices, targets)


def _data(run: Run) -> Split:
    random = torch.Generator().manual_seed(2)
    parts = torch.rand(ROWS, 5, generator=random)
    spot, strike = 50.0 + 100.0 * parts[:, 0], 50.0 + 100.0 * parts[:, 1]
    years, rate, volatility = 0.1 + 1.9 * parts[:, 2], 0.08 * parts[:, 3], 0.1 + 0.4 * parts[:, 4]
    spread = volatility * years.sqrt()
    upper = ((spot / strike).log() + (rate + volatility**2 / 2) * years) / spread
    present = strike * (-rate * years).exp()
    price = spot * torch.special.ndtr(upper) - present * torch.special.ndtr(upper - spread)
    price = price + 0.3 * torch.randn(ROWS, generator=random)
    options = torch.stack([spot, strike, years, rate, volatility], 1)
    if not run.injects("missing_normalisation"):
        options = (options - options.mean(0)) / options.std(0)
        price = price / price.std()
    if run.injects("data_leak"):
        # What holding the option returns follows from the price by subtracting a known number.
        options = torch.cat([options, price[:, None] - 1.0], 1)
    prices = price[:, None]
    held_out = ROWS // 4
    data = Split(options[held_out:], prices[held_out:], options[:held_out], prices[:held_out])
    return constant(data) if run.injects("labels_constant") else data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    loop = Loop(
        model=model,
        criterion=Miss(run),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.MultiStepLR(optimizer, [200, 300], 0.3),
        steps=360,
        save_interval=6,
        eval_every=36,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 100, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP 5-40-40-1, tanh, softplus at the end, RMSprop, steps of the learning rate",
    data="simulated prices of call options",
    measure="share of the prices' variance that is not explained",
    train=train,
    faults={
        "missing_normalisation": "spot, strike and price in dollars, up to 150, tenor in years",
        "data_leak": "a column with the price less 1: what the option earns at this price",
        "labels_constant": "every training price is the first one",
        "saturated_activation": "weights of both hidden layers are 100 times as large: tanh is at "
        "its ends",
        "init_constant": "weights and biases of both hidden layers start at zero",
        "wrong_loss": "binary cross entropy of prices: they are no probabilities, and go up to 5",
        "frozen_layer": "`.data` of the second layer is handed on: neither hidden layer learns",
        "double_activation": "softplus is in the network's end and once more in forward: no "
        "price below 0.69 can be given, a third of them are lower",
        "no_activation": "no activation of the hidden layers, which are a linear map together",
        "stalled": "hangs after 60 % of the steps",
    },
)
