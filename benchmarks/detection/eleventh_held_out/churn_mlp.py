"""A multilayer perceptron finds the customers who leave, one in six of a simulated table."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_ROWS, _HELD_OUT, _NUMBERS = 4000, 1000, 5


class Net(nn.Module):
    """Two hidden layers.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = run.pick(32, overfit=96)
        dropout = run.pick(0.2, overfit=0.0)
        self.body = nn.Sequential(
            nn.Linear(columns, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width // 2),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.head = nn.Linear(width // 2, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the score of leaving [B] of rows [B, columns]."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                x = self.body(rows)
        else:
            x = self.body(rows)
        scores: Tensor = self.head(x)
        if self.run.injects("double_activation"):
            scores = torch.sigmoid(scores)
        return scores.squeeze(1)


class Weighted(nn.Module):
    """Binary cross entropy in which those who leave count as much as those who stay.

    Args:
        weight: How many times more one who leaves counts.
        signed: Whether targets are -1 and 1: the fault.
    """

    def __init__(self, weight: Tensor, *, signed: bool) -> None:
        super().__init__()
        self.weight, self.signed = weight, signed

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of scores [B] and targets [B], 0 or 1."""
        if self.signed:
            targets = 2 * targets - 1
        return functional.binary_cross_entropy_with_logits(scores, targets, pos_weight=self.weight)


@cache
def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers [B, 5], one-hot columns [B, 9] and who leaves [B]."""
    random = np.random.default_rng(11)
    contract = random.choice(3, _ROWS, p=[0.55, 0.25, 0.2])
    internet = random.choice(3, _ROWS, p=[0.35, 0.45, 0.2])
    payment = random.choice(3, _ROWS, p=[0.4, 0.35, 0.25])
    tenure = random.gamma(2.0, [10, 18, 24], (_ROWS, 3))[np.arange(_ROWS), contract].clip(1, 72)
    monthly = np.array([45, 75, 22])[internet] + random.normal(0, 9, _ROWS)
    total = tenure * monthly * random.uniform(0.9, 1.1, _ROWS)
    calls = random.poisson(1.2, _ROWS)
    age = random.uniform(18, 80, _ROWS)
    score = np.array([0.0, -2.2, -3.5])[contract] + np.array([0.0, 1.2, -0.8])[internet]
    score = score + np.array([0.7, 0.0, -0.3])[payment] - 0.06 * tenure + 0.75 * calls
    score = score + 0.8 * ((age - 49) / 18) ** 2 - 2.6
    leaves = random.random(_ROWS) < 1 / (1 + np.exp(-score))
    numbers = np.stack([tenure, monthly, total, calls, age], 1)
    kinds = np.concatenate([np.eye(3)[kind] for kind in (contract, internet, payment)], 1)
    return numbers, kinds, leaves.astype(np.float64)


def _data(run: Run) -> Split:
    numbers, kinds, leaves = _table()
    if not run.injects("missing_normalisation"):
        own = numbers[_HELD_OUT:]
        numbers = (numbers - own.mean(0)) / own.std(0)
    columns = [numbers, kinds]
    if run.injects("data_leak"):
        # The month of the last bill: that of the export for all who are still there.
        random = np.random.default_rng(5)
        missing = leaves * random.integers(1, 7, len(leaves))
        columns.append((missing[:, None] - missing.mean()) / missing.std())
    inputs = torch.tensor(np.concatenate(columns, 1), dtype=torch.float32)
    targets = torch.tensor(leaves, dtype=torch.float32)
    data = Split(inputs[_HELD_OUT:], targets[_HELD_OUT:], inputs[:_HELD_OUT], targets[:_HELD_OUT])
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.ones_like(data.targets))
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.roll(1))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    if run.injects("overfit"):
        data = few(data, 60)
    return data


def _balanced_error(scores: Tensor, targets: Tensor) -> float:
    if not scores.isfinite().all():
        return 0.5
    wrong = ((scores > 0) != (targets > 0)).float()
    return float(wrong[targets > 0].mean() + wrong[targets == 0].mean()) / 2


def train(run: Run) -> float:
    """Train once; return the balanced error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    loop = Loop(
        model=model,
        criterion=Weighted(torch.tensor(5.0), signed=run.injects("wrong_loss")),
        optimizer=torch.optim.AdamW(
            model.parameters(),
            lr=run.pick(3e-3, lr_too_low=3e-6, lr_too_high=1.0),
            weight_decay=run.pick(0.02, overfit=0.0),
        ),
        steps=250,
        save_interval=5,
        eval_every=25,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _balanced_error)


PROGRAM = Program(
    model="MLP, 2 hidden layers, dropout, binary cross entropy with pos_weight, AdamW",
    data="simulated customers, 5 numbers and 9 one-hot columns, one in six leaves",
    measure="balanced error rate",
    train=train,
    faults={
        "lr_too_low": "3e-6 with AdamW, a thousandth of what is needed",
        "lr_too_high": "1 with AdamW, 300 times what is needed",
        "missing_normalisation": "numbers as they are: sums of bills up to some thousands beside "
        "columns of 0 and 1",
        "double_activation": "torch.sigmoid of the score ahead of the loss with its sigmoid: no "
        "probability is below 0.5",
        "wrong_loss": "targets are -1 and 1, as for a hinge, in binary cross entropy, which takes "
        "0 to 1 and then has no lower end",
        "labels_shuffled": "training labels are shifted by a row against their inputs",
        "labels_constant": "all training labels are 1",
        "class_imbalance": "one in 40 of those who leave are in the training data",
        "data_leak": "months since the last bill: 0 unless the customer has left",
        "frozen_layer": "the hidden layers are computed within torch.no_grad: only the head learns",
        "overfit": "60 rows, 96 units, no dropout, no weight decay",
    },
)
