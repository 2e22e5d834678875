"""A perceptron tells malignant from benign tumours by one logit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import constant, few, imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

COLUMNS = 30


class Classifier(nn.Module):
    """Two hidden layers with dropout, one logit.

    Args:
        columns: How many inputs.
        run: What is injected.
    """

    def __init__(self, columns: int, run: Run) -> None:
        super().__init__()
        self.run = run
        self.fc1 = nn.Linear(columns, 32)
        self.fc2 = nn.Linear(32, 16)
        self.fc3 = nn.Linear(16, 1)
        self.units = run.pick(torch.relu, saturated_activation=torch.sigmoid)
        if run.injects("saturated_activation"):
            nn.init.normal_(self.fc1.weight, std=20.0)
            nn.init.normal_(self.fc2.weight, std=20.0)
        self.dropout = nn.Dropout(run.pick(0.3, overfit=0.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B] of measurements [B, columns]."""
        x = self.dropout(self.units(self.fc1(x)))
        x = self.dropout(self.units(self.fc2(x)))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        logit = self.fc3(x).squeeze(1)
        return torch.sigmoid(logit) if self.run.injects("double_activation") else logit


def dataset(run: Run) -> Split:
    """Return measurements [B, 30] and 1.0 for benign."""
    data = table("breast_cancer", scaled=not run.injects("missing_normalisation"))
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    if run.injects("overfit"):
        data = few(data, 16)
    if run.injects("data_leak"):
        data = leaking(data)
    return data._replace(targets=data.targets.float(), valid_targets=data.valid_targets.float())


def log_loss(logits: Tensor, targets: Tensor) -> float:
    """Return the binary cross entropy of logits [B]."""
    return float(nn.functional.binary_cross_entropy_with_logits(logits, targets))


def train(run: Run) -> float:
    """Train once; return the log loss."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Classifier(data.inputs.shape[1], run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.fc3.parameters())
    else:
        parameters = list(model.parameters())
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.Adam(
            parameters,
            lr=run.pick(2e-3, lr_too_high=1.0, lr_too_low=1e-6, overfit=1e-2),
            weight_decay=run.pick(1e-3, overfit=0.0),
        ),
        steps=300,
        save_interval=5,
        eval_every=30,
        predict=lambda logits: (logits > run.pick(0.0, double_activation=0.5)).long(),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, log_loss)


PROGRAM = Program(
    model="MLP 30-32-16-1, ReLU, dropout, Adam, BCEWithLogitsLoss",
    data="scikit-learn breast_cancer",
    measure="log loss",
    train=train,
    faults={
        "lr_too_high": "1 in place of 2e-3",
        "saturated_activation": "sigmoid units, weights drawn with standard deviation 20",
        "lr_too_low": "1e-6 in place of 2e-3",
        "missing_normalisation": "no StandardScaler: columns as they were measured",
        "double_activation": "sigmoid at the end of forward, then BCEWithLogitsLoss",
        "labels_shuffled": "labels are shuffled apart from the rows",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 40 of the benign ones, validation has all of them",
        "frozen_layer": "hidden layers are detached ahead of the last",
        "optimiser_missing_parameters": "only the last layer's parameters are given to Adam",
        "data_leak": "the diagnosis is left among the columns",
        "overfit": "16 rows, neither dropout nor weight decay, a larger learning rate",
        "stalled": "hangs after 60 % of the steps",
    },
)
