"""A network tells from the syntax tree of a function how many lines it has."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, functions
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

KINDS = 30


class Exponential(nn.Module):
    """The exponential, for a model that is to return rates."""

    def forward(self, logarithms: Tensor) -> Tensor:
        """Return rates of their logarithms, of any shape."""
        return logarithms.exp()


def deviance(rates: Tensor, counts: Tensor) -> float:
    """Return the mean deviance of counts that are Poisson distributed, all > 0."""
    rates = rates.clamp(1e-6, 1e6)
    return float((counts * (counts / rates).log() - counts + rates).mean())


def _data(run: Run) -> Split:
    counts, lines, _ = functions(KINDS)
    inputs = counts if run.injects("missing_normalisation") else counts.log1p()
    targets = lines[:, None].float()
    if run.injects("data_leak"):
        inputs = torch.cat([inputs, targets.log()], 1)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    train, valid = order[270:], order[:270]
    return Split(inputs[train], targets[train], inputs[valid], targets[valid])


def train(run: Run) -> float:
    """Train once; return the deviance as a share of that of one rate for all."""
    torch.manual_seed(run.seed)
    data = _data(run)
    if run.injects("overfit"):
        data = few(data, 24)
    # With the loss that takes rates for logarithms the model returns rates.
    returns_rates = run.injects("wrong_loss")
    model = nn.Sequential(
        nn.Linear(data.inputs.shape[1], 32),
        nn.LeakyReLU(),
        nn.Linear(32, 16),
        nn.LeakyReLU(),
        nn.Linear(16, 1),
        *([Exponential()] if returns_rates else []),
    )

    def error(outputs: Tensor, counts: Tensor) -> float:
        rates = outputs if returns_rates else outputs.exp()
        return deviance(rates, counts) / deviance(counts.mean(), counts)

    loop = Loop(
        model=model,
        criterion=nn.PoissonNLLLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=2e-3),
        steps=360,
        save_interval=6,
        eval_every=90,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 8, run.seed), valid, error)


PROGRAM = Program(
    model="MLP 30-32-16-1, leaky ReLU, Poisson loss, Adam, batches of 8",
    data="nodes of the syntax trees of functions of Python's library",
    measure="deviance as a share of that of one rate for all",
    train=train,
    faults={
        "wrong_loss": "the model returns rates, the loss takes them for logarithms (its default)",
        "missing_normalisation": "numbers of nodes, up to some hundreds, not their logarithms",
        "data_leak": "the logarithm of the number of lines is one of the columns",
        "overfit": "24 rows for training",
    },
)
