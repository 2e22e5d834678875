"""A multilayer perceptron tells whose diabetes will have progressed by more than the usual."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import few, imbalanced, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_USUAL = 140.0


class Net(nn.Module):
    """One hidden layer, dropout, and a score.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = run.pick(16, overfit=128)
        self.hidden = nn.Linear(columns, width)
        self.drop = nn.Dropout(run.pick(0.3, overfit=0.0))
        self.head = nn.Linear(width, 1)
        if run.injects("dead_relu"):
            shifted_([self.hidden], -10.0)

    def forward(self, rows: Tensor) -> Tensor:
        """Return scores [B] of rows [B, columns]."""
        x = self.drop(functional.relu(self.hidden(rows)))
        scores: Tensor = self.head(x)[:, 0]
        return scores.sigmoid() if self.run.injects("double_activation") else scores


class Loss(nn.Module):
    """Binary cross entropy of a score.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of scores [B] and targets [B], 0 or 1."""
        if self.run.injects("wrong_loss"):
            return functional.soft_margin_loss(scores, targets)
        return functional.binary_cross_entropy_with_logits(scores, targets)


def _data(run: Run) -> Split:
    progress = table("diabetes", scaled=not run.injects("missing_normalisation"))
    data = progress._replace(
        targets=(progress.targets > _USUAL).float(),
        valid_targets=(progress.valid_targets > _USUAL).float(),
    )
    if run.injects("data_leak"):
        # The table's last column is the progress itself.
        mean, std = progress.targets.mean(), progress.targets.std()
        data = data._replace(
            inputs=torch.cat([data.inputs, ((progress.targets - mean) / std)[:, None]], 1),
            valid_inputs=torch.cat(
                [data.valid_inputs, ((progress.valid_targets - mean) / std)[:, None]], 1
            ),
        )
    if run.injects("labels_shuffled"):
        data = shuffled(data, 2)
    if run.injects("labels_constant"):
        # The threshold is of another unit.
        data = data._replace(targets=(progress.targets > _USUAL / 100).float())
    if run.injects("class_imbalance"):
        data = imbalanced(data, 30)
    if run.injects("overfit"):
        data = few(data, 40)
    return data


def _log_loss(scores: Tensor, targets: Tensor) -> float:
    loss = functional.binary_cross_entropy_with_logits(scores, targets)
    return float(loss.nan_to_num(1e9))


def train(run: Run) -> float:
    """Train once; return the log loss."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.03, lr_too_low=6e-5, lr_too_high=5.0),
        momentum=0.9,
        weight_decay=run.pick(1e-2, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=optimizer,
        steps=150,
        save_interval=3,
        eval_every=15,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5),
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _log_loss)


PROGRAM = Program(
    model="MLP, 1 hidden layer, dropout, functional binary cross entropy, SGD with momentum, "
    "stepwise decay",
    data="scikit-learn diabetes: progress above 140 or not",
    measure="log loss",
    train=train,
    faults={
        "lr_too_low": "6e-5 with SGD, a 500th of what is needed",
        "lr_too_high": "5 with SGD, 160 times what is needed",
        "missing_normalisation": "columns as they were measured: cholesterol of 200 beside a "
        "logarithm of 4",
        "double_activation": "a sigmoid ahead of binary_cross_entropy_with_logits, which has one",
        "wrong_loss": "soft_margin_loss, which takes -1 and 1, of targets 0 and 1: rows of class 0 "
        "have the same loss whatever the score is",
        "dead_relu": "hidden biases start near -10: the ReLUs never fire",
        "labels_shuffled": "training labels are those of other rows",
        "labels_constant": "the threshold is in another unit: every row is above it",
        "class_imbalance": "one in 30 rows with progress in training",
        "data_leak": "the progress that the classes are made from is left among the inputs",
        "overfit": "40 rows, 128 units, no dropout, no weight decay",
    },
)
