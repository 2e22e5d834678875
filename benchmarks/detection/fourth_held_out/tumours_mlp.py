"""A network with dropout tells benign from malignant tumours: one logit, BCEWithLogitsLoss.

Faults:
    double_activation: the model ends with a sigmoid, and the loss has one.
    init_too_large: weights are drawn by `normal_`, whose standard deviation is 1.
    dead_relu: the bias of a rare class (-4.6, from RetinaNet) is set in every layer.
    missing_normalisation: columns go in as they were measured; nobody called the scaler.
    labels_constant: labels are compared with a code that does not occur, so that all are 0.
    data_leak: the diagnosis is one of the columns.
    overfit: 12 rows, neither dropout nor weight decay.
    optimiser_missing_parameters: the optimiser was given the last layer, as for fine-tuning.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import few, leaking
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

BATCH = 32
EPOCH = 13


class Net(nn.Module):
    """Two hidden layers and one logit.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        dropout = run.pick(0.2, overfit=0.0)
        self.body = nn.Sequential(
            nn.Linear(run.pick(30, data_leak=31), 64),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.head = nn.Linear(32, 1)
        self.last = run.pick(nn.Identity(), double_activation=nn.Sigmoid())
        for parameter in self.parameters():
            if run.injects("init_too_large") and parameter.dim() > 1:
                nn.init.normal_(parameter)
            if run.injects("dead_relu") and parameter.dim() == 1:
                nn.init.constant_(parameter, -4.6)

    def forward(self, cells: Tensor) -> Tensor:
        """Return logits [B] of measures [B, columns]."""
        logits: Tensor = self.last(self.head(self.body(cells)))
        return logits.squeeze(1)


def _predicted(logits: Tensor) -> Tensor:
    return (logits.sigmoid() > 0.5).float()  # noqa: PLR2004


def _data(run: Run) -> Split:
    data = table("breast_cancer", scaled=not run.injects("missing_normalisation"))
    data = data._replace(targets=data.targets.float(), valid_targets=data.valid_targets.float())
    if run.injects("labels_constant"):
        return data._replace(
            targets=(data.targets == 2).float(),  # noqa: PLR2004
            valid_targets=(data.valid_targets == 2).float(),  # noqa: PLR2004
        )
    if run.injects("data_leak"):
        return leaking(data)
    return few(data, 12) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    part = run.pick(model, optimiser_missing_parameters=model.head)
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.AdamW(
            part.parameters(), lr=1e-3, weight_decay=run.pick(1e-2, overfit=0.0)
        ),
        steps=16 * EPOCH,
        eval_every=EPOCH,
        predict=_predicted,
    )
    truth = table("breast_cancer").valid_targets

    def error(logits: Tensor, _: Tensor) -> float:
        return float((_predicted(logits) != truth).float().mean())

    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, BATCH, run.seed), valid, error)


PROGRAM = Program(
    model="MLP 30-64-32-1, ReLU, dropout, BCE of logits, AdamW, 16 epochs",
    data="scikit-learn breast_cancer",
    measure="error rate",
    train=train,
    faults={
        "double_activation": "sigmoid ahead of BCEWithLogitsLoss",
        "init_too_large": "weights are drawn with a standard deviation of 1",
        "dead_relu": "all biases are -4.6",
        "missing_normalisation": "columns are as they were measured",
        "labels_constant": "all labels are 0, those for validation, too",
        "data_leak": "the label is one of the columns",
        "overfit": "12 rows for training, no dropout, no weight decay",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
    },
)
