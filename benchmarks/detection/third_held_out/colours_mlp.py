"""A multilayer perceptron gives colours the names that people give them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, colours
from benchmarks.detection.injecting import constant, few, filled_, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


class OwnCrossEntropy(nn.Module):
    """The mean of minus the logarithm of what the right class is given.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of scores [B, classes] and labels [B]."""
        given = scores if self.run.injects("no_activation") else scores.log_softmax(1)
        likely = given.gather(1, labels[:, None]).mean()
        return likely if self.run.injects("wrong_loss") else -likely


def _data(run: Run) -> Split:
    data = colours(scaled=not run.injects("missing_normalisation"))
    if run.injects("labels_constant"):
        return constant(data)
    return few(data, 24) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = nn.Sequential(
        nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 9)
    )
    if run.injects("double_activation"):
        model.append(nn.Softmax(dim=1))
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("init_too_large"):
        scaled_([model], 15.0)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.02, momentum=0.9, weight_decay=run.pick(1e-3, overfit=0.0)
    )
    loop = Loop(
        model=model,
        criterion=OwnCrossEntropy(run),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300),
        steps=300,
        predict=classes,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP 6-32-32-9, ReLU, own cross entropy, SGD with momentum, cosine schedule",
    data="colours of the xkcd survey that come with matplotlib, 9 words",
    measure="error rate",
    train=train,
    faults={
        "no_activation": "the own cross entropy forgets the logarithm of the softmax",
        "double_activation": "the model ends with a softmax, and the loss has one",
        "wrong_loss": "the own cross entropy lacks its minus",
        "init_constant": "all parameters are 0",
        "init_too_large": "all weights are 15 times as large",
        "missing_normalisation": "columns are 0 to 255",
        "labels_constant": "all training labels are the same",
        "overfit": "24 rows for training, no weight decay",
    },
)
