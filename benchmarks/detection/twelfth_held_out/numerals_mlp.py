"""A perceptron with dropout reads handwritten digits, as in a first course."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, filled_, imbalanced, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

BRIGHTEST = 16.0
MEAN, STD = 0.305, 0.376


class NeuralNetwork(nn.Module):
    """Three linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        dropout = run.pick(0.2, overfit=0.0)
        units = run.pick(nn.ReLU, no_activation=nn.Identity)
        self.stack = nn.Sequential(
            nn.Linear(64, 128),
            units(),
            nn.Dropout(dropout),
            nn.Linear(128, 64),
            units(),
            nn.Dropout(dropout),
        )
        self.output = nn.Linear(64, 10)
        if run.injects("init_constant"):
            filled_([self.stack], 0.0)
        if run.injects("init_too_large"):
            scaled_([self], 20.0)
        if run.injects("dead_relu"):
            second = self.stack[3]
            assert isinstance(second, nn.Linear)
            shifted_([second], -10.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 64]."""
        scores = self.output(self.stack(images))
        return F.softmax(scores, 1) if self.run.injects("double_activation") else scores


class Criterion(nn.Module):
    """The loss as a function."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy of scores [B, 10] and labels [B]."""
        return F.cross_entropy(scores, labels)


def dataset(run: Run) -> Split:
    """Return images [B, 64] and their digits."""
    data = digits(scaled=False)
    if run.injects("missing_normalisation"):
        data = data._replace(
            inputs=data.inputs * 255 / BRIGHTEST, valid_inputs=data.valid_inputs * 255 / BRIGHTEST
        )
    else:
        data = data._replace(
            inputs=(data.inputs / BRIGHTEST - MEAN) / STD,
            valid_inputs=(data.valid_inputs / BRIGHTEST - MEAN) / STD,
        )
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = NeuralNetwork(run)
    trained = model.output if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.SGD(
        trained.parameters(),
        lr=run.pick(0.05, lr_too_high=5.0),
        momentum=0.9,
        weight_decay=run.pick(1e-4, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=Criterion(),
        optimizer=optimizer,
        steps=400,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 150, 0.3),
        predict=classes,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP 64-128-64-10, ReLU, dropout, SGD with momentum, StepLR, F.cross_entropy",
    data="scikit-learn digits, pixels as in MNIST",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.05",
        "no_activation": "linear layers follow each other without ReLU",
        "missing_normalisation": "pixels from 0 to 255: neither ToTensor nor Normalize",
        "double_activation": "softmax at the end of forward, then F.cross_entropy",
        "init_constant": "nn.init.zeros_ on the hidden layers' weights and biases",
        "init_too_large": "all weights are 20 times as large",
        "dead_relu": "biases of the second hidden layer begin near -10",
        "labels_shuffled": "labels are shuffled apart from the images",
        "class_imbalance": "one in 50 rows of every digit but 0",
        "optimiser_missing_parameters": "only the last layer's parameters are given to SGD",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "60 images, no dropout, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
