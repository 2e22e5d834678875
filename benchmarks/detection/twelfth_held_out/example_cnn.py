"""The network of PyTorch's MNIST example, made smaller, reads scikit-learn's digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, filled_, imbalanced, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

BRIGHTEST = 16.0


class Net(nn.Module):
    """Two convolutions, pooling, two linear layers, dropout between them.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(1, 12, 3, 1)
        self.conv2 = nn.Conv2d(12, 24, 3, 1)
        self.dropout1 = nn.Dropout(run.pick(0.25, overfit=0.0))
        self.dropout2 = nn.Dropout(run.pick(0.4, overfit=0.0))
        self.fc1 = nn.Linear(24 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 10)
        if run.injects("dead_relu"):
            shifted_([self.conv2], -20.0)
        if run.injects("init_constant"):
            filled_([self.conv1, self.conv2, self.fc1, self.fc2], 0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Return logarithms of probabilities [B, 10] of images [B, 1, 8, 8]."""
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = torch.flatten(x, 1)
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                x = F.relu(self.fc1(x))
        else:
            x = F.relu(self.fc1(x))
        x = self.fc2(self.dropout2(x))
        if self.run.injects("double_activation"):
            x = F.softmax(x, dim=1)
        return F.log_softmax(x, dim=1)


class Criterion(nn.Module):
    """The loss as a function."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the negative log likelihood of outputs [B, 10] and labels [B]."""
        return F.nll_loss(outputs, labels)


def dataset(run: Run) -> Split:
    """Return images [B, 1, 8, 8] and their digits."""
    data = digits(scaled=False)
    data = data._replace(
        inputs=data.inputs.view(-1, 1, 8, 8) / BRIGHTEST,
        valid_inputs=data.valid_inputs.view(-1, 1, 8, 8) / BRIGHTEST,
    )
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    return few(data, 50) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Net(run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.fc2.parameters())
    else:
        parameters = list(model.parameters())
    optimizer = torch.optim.Adadelta(
        parameters, lr=run.pick(1.0, lr_too_low=1e-4, lr_too_high=100.0)
    )
    loop = Loop(
        model=model,
        criterion=Criterion(),
        optimizer=optimizer,
        steps=400,
        eval_every=50,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 100, gamma=0.7),
        predict=classes,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 225), torch.split(data.valid_targets, 225), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN, 2 convolutions, 2 linear layers, dropout, Adadelta, StepLR, F.nll_loss",
    data="scikit-learn digits as images from 0 to 1",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "100 in place of 1",
        "lr_too_low": "1e-4 in place of 1",
        "double_activation": "softmax, and log_softmax after it",
        "init_constant": "all weights and biases are 0.01",
        "dead_relu": "biases of the second convolution begin near -20",
        "labels_shuffled": "labels are shuffled apart from the images",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 40 rows of every digit but 0",
        "frozen_layer": "the first linear layer is computed under no_grad",
        "optimiser_missing_parameters": "only the last layer's parameters are given to Adadelta",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "50 images, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
