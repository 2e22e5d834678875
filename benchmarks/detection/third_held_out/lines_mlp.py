"""A multilayer perceptron tells lines of code from lines of prose by pairs of letters."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, code_text, docs_text
from benchmarks.detection.injecting import imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

PAIRS = 256


class Net(nn.Module):
    """Two hidden layers with batch normalisation and dropout, one output.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        inputs = run.pick(PAIRS, data_leak=PAIRS + 1)
        self.fc1, self.bn1 = nn.Linear(inputs, 64), nn.BatchNorm1d(64)
        self.fc2, self.bn2 = nn.Linear(64, 32), nn.BatchNorm1d(32)
        self.relu, self.drop = nn.ReLU(), nn.Dropout(0.2)
        self.out = nn.Linear(32, 1)
        self.last = run.pick(nn.Identity(), double_activation=nn.Sigmoid())
        if run.injects("dead_relu"):
            nn.init.constant_(self.bn2.bias, -6.0)

    def forward(self, counts: Tensor) -> Tensor:
        """Return logits [B] of counts of pairs [B, PAIRS]."""
        x = self.drop(self.relu(self.bn1(self.fc1(counts))))
        x = self.drop(self.relu(self.bn2(self.fc2(x))))
        logits: Tensor = self.last(self.out(x))
        return logits.squeeze(1)


def _predicted(logits: Tensor) -> Tensor:
    return (logits.sigmoid() > 0.5).float()  # noqa: PLR2004


def _error(logits: Tensor, targets: Tensor) -> float:
    return float((_predicted(logits) != targets).float().mean())


def _long_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if len(line.strip()) > 24]  # noqa: PLR2004


@cache
def _data() -> Split:
    prose = _long_lines("\n".join(docs_text().values()))[:2000]
    code = _long_lines("\n".join(code_text().values()))[:2000]
    counts = torch.zeros(4000, PAIRS)
    for row, line in enumerate(prose + code):
        for first, second in pairwise(line):
            counts[row, (31 * ord(first) + ord(second)) % PAIRS] += 1
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(0))
    counts, targets = counts.log1p()[order], (order >= 2000).float()  # noqa: PLR2004
    mean, std = counts[500:].mean(0), counts[500:].std(0).clamp(min=0.05)
    counts = (counts - mean) / std
    return Split(counts[500:], targets[500:], counts[:500], targets[:500])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("data_leak"):
        data = leaking(data, scale=2.0)
    model = Net(run)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=run.pick(2e-3, lr_too_low=1e-7), weight_decay=1e-4
    )
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(),
        optimizer=optimizer,
        steps=200,
        predict=_predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP 256-64-32-1, BatchNorm, ReLU, dropout, Adam",
    data="lines of Python's library and of its help, as counts of pairs of letters",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "1e-7 in place of 2e-3",
        "double_activation": "sigmoid ahead of BCEWithLogitsLoss",
        "dead_relu": "biases of the second batch normalisation are initialised to -6",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 100 lines of code, but half of them in validation",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "twice the label is one of the columns",
    },
)
