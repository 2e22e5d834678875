"""DeepSurv: an MLP with Cox's partial likelihood, on simulated survival times."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

ROWS, HELD_OUT, COLUMNS, BATCH = 2000, 500, 6, 125
UNITS = (40.0, 12.0, 3000.0, 250.0, 9000.0, 0.5)


def patients() -> Split:
    """Return columns, float32 [B, 6], and time in years with whether it ended in death, [B, 2].

    As in DeepSurv's simulation, the logarithm of the risk is a Gaussian of two columns.
    """
    random = torch.Generator().manual_seed(0)
    count = ROWS + HELD_OUT
    x = 2 * torch.rand(count, COLUMNS, generator=random) - 1
    risk = 4 * (-(x[:, 0].square() + x[:, 1].square()) / (2 * 0.5**2)).exp()
    time = 5 * (-risk).exp() * -torch.rand(count, generator=random).clamp(min=1e-6).log()
    end = 1 + 9 * torch.rand(count, generator=random)
    y = torch.stack([time.minimum(end), (time <= end).float()], 1)
    return Split(x[:ROWS], y[:ROWS], x[ROWS:], y[ROWS:])


class PartialLikelihood(nn.Module):
    """Cox's negative logarithm of the partial likelihood of a batch.

    Args:
        is_reversed: Whether times are sorted the wrong way round.
    """

    def __init__(self, *, is_reversed: bool) -> None:
        super().__init__()
        self.is_reversed = is_reversed

    def forward(self, risks: Tensor, outcomes: Tensor) -> Tensor:
        """Return the mean over deaths of risks [B] and outcomes [B, 2]."""
        order = outcomes[:, 0].argsort(descending=not self.is_reversed)
        risks, died = risks[order], outcomes[order, 1]
        at_risk = risks.logcumsumexp(0)
        return -((risks - at_risk) * died).sum() / died.sum().clamp(min=1)


def discordance(risks: Tensor, outcomes: Tensor) -> float:
    """Return 1 - C, the share of comparable pairs in which the wrong one died first."""
    if not risks.isfinite().all():
        return 1.0
    time, died = outcomes.unbind(1)
    comparable = (time[:, None] < time) & (died[:, None] > 0)
    higher = (risks[:, None] > risks).float() + 0.5 * (risks[:, None] == risks).float()
    return 1 - float(higher[comparable].mean())


class Net(nn.Module):
    """Three linear layers with ReLU between them; a high output is a high risk."""

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.is_linear = run.injects("no_activation")
        self.first, self.second = nn.Linear(columns, 32), nn.Linear(32, 32)
        self.head = nn.Linear(32, 1, bias=False)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        if run.injects("init_too_large"):
            for layer in (self.first, self.second, self.head):
                nn.init.normal_(layer.weight, std=6.0)
        if run.injects("dead_relu"):
            nn.init.constant_(self.first.bias, -5.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return logarithms of risks [B] of columns [B, columns]."""
        if self.is_linear:
            out: Tensor = self.head(self.second(self.first(x)))
        else:
            out = self.head(self.relu2(self.second(self.relu1(self.first(x)))))
        return out[:, 0]


def _data(run: Run) -> Split:
    data = patients()
    if run.injects("missing_normalisation"):
        units = torch.tensor(UNITS)
        data = data._replace(
            inputs=(data.inputs + 1.2) * units, valid_inputs=(data.valid_inputs + 1.2) * units
        )
    else:
        mean, std = data.inputs.mean(0), data.inputs.std(0)
        data = data._replace(
            inputs=(data.inputs - mean) / std, valid_inputs=(data.valid_inputs - mean) / std
        )
    if run.injects("data_leak"):
        # The years of follow-up stayed in the table.
        years = (data.targets[:, :1] - 2) / 2, (data.valid_targets[:, :1] - 2) / 2
        data = data._replace(
            inputs=torch.cat([data.inputs, years[0]], 1),
            valid_inputs=torch.cat([data.valid_inputs, years[1]], 1),
        )
    if run.injects("labels_shuffled"):
        data = shuffled(data, 2)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return 1 - C."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    loop = Loop(
        model=model,
        criterion=PartialLikelihood(is_reversed=run.injects("wrong_loss")),
        optimizer=torch.optim.Adam(
            model.parameters(),
            lr=run.pick(4e-3, lr_too_low=4e-6),
            weight_decay=run.pick(1e-4, overfit=0.0),
        ),
        steps=run.pick(200, overfit=300),
        eval_every=40,
    )
    # As many at once as in training: the loss grows with the number of those at risk.
    valid = [
        (data.valid_inputs[rows : rows + BATCH], data.valid_targets[rows : rows + BATCH])
        for rows in range(0, HELD_OUT, BATCH)
    ]
    return fit(run, loop, batches_of(data, BATCH, run.seed), valid, discordance)


PROGRAM = Program(
    model="MLP, 2 hidden layers, ReLU, Adam, Cox's partial likelihood",
    data="simulated survival times with censoring",
    measure="1 - C",
    train=train,
    faults={
        "wrong_loss": "times are sorted ascending: those at risk are those who left before",
        "data_leak": "the years of follow-up, which are the target, are a column of the inputs",
        "missing_normalisation": "columns in their units: means from 0.6 to 10,800",
        "overfit": "60 patients, no weight decay, 300 steps",
        "init_too_large": "weights of all layers are of standard deviation 6",
        "labels_shuffled": "times and deaths are those of other patients",
        "no_activation": "ReLU was forgotten between the layers: the model is linear",
        "dead_relu": "biases of the first layer begin at -5: its ReLUs never fire",
        "lr_too_low": "learning rate 4e-6 instead of 4e-3, 1,000 times too low",
    },
)
