"""A network with dropout tells clusters in many columns apart, by a focal loss."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import make_classification
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

STEPS = 300


class FocalLoss(nn.Module):
    """Cross entropy in which rows count less the surer they are.

    Args:
        gamma: How much less.
        is_flipped: Whether the minus of the log likelihood is left out.
    """

    def __init__(self, gamma: float, is_flipped: bool) -> None:
        super().__init__()
        self.gamma = gamma
        self.is_flipped = is_flipped

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, classes] and classes, int64 [B]."""
        logs = scores.log_softmax(-1).gather(1, labels[:, None])
        factors = (1 - logs.exp()).pow(self.gamma)
        if self.is_flipped:
            return (factors * logs).mean()
        return -(factors * logs).mean()


class Net(nn.Module):
    """Three linear layers, with dropout.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.fc1, self.fc2, self.out = nn.Linear(20, 64), nn.Linear(64, 32), nn.Linear(32, 4)
        activation = nn.Identity if run.injects("no_activation") else nn.ReLU
        self.relu1, self.relu2 = activation(), activation()
        self.drop = nn.Dropout(run.pick(0.1, overfit=0.0))
        if run.injects("dead_relu"):
            shifted_([self.fc2], -30.0)

    def forward(self, rows: Tensor) -> Tensor:
        """Return scores [B, 4] of rows [B, 20]."""
        x = self.drop(self.relu1(self.fc1(rows)))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        x = self.relu2(self.fc2(x))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.out(x)
        return scores


def _data(run: Run) -> Split:
    rows, labels = make_classification(
        n_samples=3200,
        n_features=20,
        n_informative=6,
        n_redundant=4,
        n_classes=4,
        n_clusters_per_class=2,
        class_sep=1.6,
        flip_y=0.01,
        random_state=3,
    )
    inputs, targets = torch.tensor(rows, dtype=torch.float32), torch.tensor(labels).long()
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    if run.injects("missing_normalisation"):
        scales = torch.tensor(np.random.default_rng(1).choice([0.01, 1.0, 50.0, 3000.0], 20))
        inputs = inputs * scales.float() + 2 * scales.float()
    data = Split(inputs[800:], targets[800:], inputs[:800], targets[:800])
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    if run.injects("overfit"):
        data = few(data, 48)
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.1, lr_too_high=30.0, lr_too_low=1e-4),
        momentum=0.9,
        weight_decay=run.pick(1e-4, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=FocalLoss(1.0, run.injects("wrong_loss")),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
        save_interval=5,
        eval_every=30,
        predict=classes,
        is_own_module=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP 20-64-32-4, ReLU, dropout, SGD with momentum, cosine schedule, focal loss",
    data="clusters on the corners of a cube, scikit-learn make_classification",
    measure="error rate",
    train=train,
    faults={
        "missing_normalisation": "columns in their own units: standard deviations from 0.01 to "
        "3,000, means twice as much",
        "class_imbalance": "all rows of class 0, one in 60 of the others; validation has all",
        "lr_too_low": "1e-4 in place of 0.1",
        "lr_too_high": "30 in place of 0.1",
        "overfit": "48 rows for training, no dropout, no weight decay",
        "frozen_layer": "outputs of both hidden layers are detached: only the last one learns",
        "dead_relu": "biases of the second layer start at -30: its ReLUs never fire",
        "no_activation": "both ReLUs were forgotten: a linear map, where classes lie in corners",
        "wrong_loss": "the minus of the log likelihood was forgotten: right classes get unlikely",
    },
)
