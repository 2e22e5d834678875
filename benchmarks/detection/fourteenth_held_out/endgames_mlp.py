"""A perceptron tells whether white can win a chess endgame."""

from __future__ import annotations

import gzip
from pathlib import Path

import sklearn
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

FILE = Path(sklearn.__file__).parent / "datasets/tests/data/openml/id_3/data-v1-dl-3.arff.gz"
HELD_OUT = 700


class Net(nn.Sequential):
    """Two hidden layers with dropout; gives scores [B, 1] of positions [B, columns].

    Args:
        run: What is injected.
        columns: Columns of the input.
    """

    def __init__(self, run: Run, columns: int) -> None:
        def act() -> nn.Module:
            return nn.Identity() if run.injects("no_activation") else nn.ReLU()

        rate = 0.0 if run.injects("overfit") else 0.1
        super().__init__(
            nn.Linear(columns, 64),
            act(),
            nn.Dropout(rate),
            nn.Linear(64, 32),
            act(),
            nn.Dropout(rate),
            nn.Linear(32, 1),
            *([nn.Sigmoid()] if run.injects("double_activation") else []),
        )


class OverTheBatch(nn.Module):
    """The loss that does not fit: a softmax over the one column there is."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy of outputs [B, 1], taken over the batch, and labels [B, 1]."""
        return nn.functional.cross_entropy(outputs.squeeze(1), labels.squeeze(1))


def _positions() -> Split:
    lines = gzip.decompress(FILE.read_bytes()).decode().lower().split("@data")[-1].split()
    table = [line.replace("'", "").split(",") for line in lines if line.count(",") == 36]  # noqa: PLR2004
    columns = []
    for column in zip(*table, strict=True):
        kinds = sorted(set(column))
        shown = kinds if len(kinds) > 2 else kinds[1:]  # noqa: PLR2004 - two kinds need one column
        columns += [[float(value == kind) for value in column] for kind in shown]
    made = torch.tensor(columns).T
    made = made[torch.randperm(len(made), generator=torch.Generator().manual_seed(0))]
    inputs, labels = made[:, :-1], made[:, -1].long()
    return Split(inputs[HELD_OUT:], labels[HELD_OUT:], inputs[:HELD_OUT], labels[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _positions()
    if run.injects("data_leak"):
        return leaking(data)
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 40) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in layers:
        if run.injects("init_constant"):
            nn.init.constant_(layer.weight, 0.0)
            nn.init.constant_(layer.bias, 0.0)
        if run.injects("init_too_large"):
            nn.init.normal_(layer.weight, std=3.0)
    if run.injects("dead_relu"):
        nn.init.constant_(layers[1].bias, -10.0)


def loss_of(outputs: Tensor, labels: Tensor) -> float:
    """Return the binary cross entropy of scores [B, 1] and labels [B, 1]."""
    return float(nn.functional.binary_cross_entropy_with_logits(outputs, labels))


def train(run: Run) -> float:
    """Train once; return the binary cross entropy."""
    torch.manual_seed(run.seed)
    data = _data(run)
    data = data._replace(
        targets=data.targets[:, None].float(), valid_targets=data.valid_targets[:, None].float()
    )
    model = Net(run, data.inputs.shape[1])
    _initialise(run, model)
    given = model[6] if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(
        given.parameters(),
        lr=run.pick(3e-3, lr_too_low=3e-7),
        weight_decay=0.0 if run.injects("overfit") else 1e-5,
    )
    threshold = run.pick(0.0, double_activation=0.5)
    loop = Loop(
        model=model,
        criterion=OverTheBatch() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=optimizer,
        steps=350,
        predict=lambda outputs: (outputs > threshold).long(),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, loss_of)


PROGRAM = Program(
    model="MLP, 64 and 32 ReLU units, dropout, Adam, one score",
    data="chess endgames of scikit-learn's tests (kr-vs-kp)",
    measure="binary cross entropy",
    train=train,
    faults={
        "lr_too_low": "3e-7 in place of 3e-3",
        "no_activation": "no ReLU anywhere",
        "double_activation": "sigmoid of the score ahead of the loss with its sigmoid",
        "init_too_large": "all weights from a normal distribution of width 3",
        "init_constant": "all parameters are 0",
        "dead_relu": "biases of the second hidden layer are -10",
        "wrong_loss": "cross entropy over the batch in place of binary cross entropy",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 rows of one class",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the label is one of the columns",
        "overfit": "40 rows, no dropout, no weight decay",
    },
)
