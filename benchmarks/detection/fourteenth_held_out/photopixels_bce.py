"""A perceptron tells from the colours of a pixel and its neighbours which photograph it is of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import (
    constant,
    few,
    imbalanced,
    leaking,
    shifted_,
    shuffled,
)
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

OF_A_PHOTO = 4000
HELD_OUT = 2000


def _pixels(name: str) -> Tensor:
    """Return colours, and mean and deviation of 3 by 3 pixels [OF_A_PHOTO, 5], 0 to 255."""
    image = photo(name, 640) * 255
    height, width, _ = image.shape
    random = torch.Generator().manual_seed(2)
    row = torch.randint(1, height - 1, (OF_A_PHOTO,), generator=random)
    column = torch.randint(1, width - 1, (OF_A_PHOTO,), generator=random)
    grey = image.mean(2)
    around = torch.stack(
        [grey[row + down, column + right] for down in (-1, 0, 1) for right in (-1, 0, 1)], 1
    )
    texture = torch.stack([around.mean(1), around.std(1)], 1)
    return torch.cat([image[row, column], texture], 1)


def _data(run: Run) -> Split:
    inputs = torch.cat([_pixels("china.jpg"), _pixels("flower.jpg")])
    targets = torch.arange(2.0).repeat_interleave(OF_A_PHOTO)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, targets = inputs[order], targets[order]
    if not run.injects("missing_normalisation"):
        inputs = (inputs - inputs[HELD_OUT:].mean(0)) / inputs[HELD_OUT:].std(0)
    data = Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("overfit"):
        data = few(data, 40)
    return data._replace(targets=data.targets[:, None], valid_targets=data.valid_targets[:, None])


class Classifier(nn.Module):
    """Two hidden layers and one score.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = run.pick(48, overfit=256)
        self.fc1 = nn.Linear(columns, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, 1)
        self.relu = nn.Identity() if run.injects("no_activation") else nn.ReLU()
        self.drop = nn.Dropout(run.pick(0.2, overfit=0.0))
        if run.injects("dead_relu"):
            shifted_([self.fc1], -20.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [B, 1] of pixels [B, columns]."""
        x = self.relu(self.fc1(x))
        x = self.drop(self.relu(self.fc2(x)))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        x = self.fc3(x)
        return torch.sigmoid(x) if self.run.injects("double_activation") else x


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Classifier(run, data.inputs.shape[1])
    given = model.fc3 if run.injects("optimiser_missing_parameters") else model

    def predicted(outputs: Tensor) -> Tensor:
        return (outputs > 0).float()

    def error(outputs: Tensor, targets: Tensor) -> float:
        return float((predicted(outputs) != targets).float().mean())

    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.SGD(
            given.parameters(),
            lr=run.pick(0.1, lr_too_high=5.0),
            momentum=0.9,
            nesterov=True,
            weight_decay=run.pick(1e-3, overfit=0.0),
        ),
        steps=400,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 50, run.seed), valid, error)


PROGRAM = Program(
    model="MLP, 2 hidden layers of 48 ReLU units, dropout, SGD with momentum, BCEWithLogitsLoss",
    data="pixels of scikit-learn's two photographs with their surroundings",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.1",
        "no_activation": "no ReLU between the layers",
        "double_activation": "sigmoid in a model whose loss and prediction are for logits",
        "dead_relu": "biases of the first layer begin 20 lower",
        "missing_normalisation": "inputs from 0 to 255",
        "wrong_loss": "nn.CrossEntropyLoss over one output, which is always 0",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are that of the first row",
        "class_imbalance": "one in 100 rows of one of the two classes, but not where it is tested",
        "frozen_layer": "the hidden layers are detached ahead of the last",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "data_leak": "the label is one of the columns",
        "overfit": "40 rows, 256 units, no dropout, no weight decay",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
