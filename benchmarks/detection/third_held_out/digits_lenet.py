"""A convolutional network of the kind of LeNet tells handwritten digits apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


def _model(run: Run) -> nn.Sequential:
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 6, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 48),
        nn.Tanh(),
        nn.Linear(48, 10),
    )
    if run.injects("double_activation"):
        model.append(nn.Softmax(dim=1))
    if not run.injects("no_activation"):
        model.append(nn.LogSoftmax(dim=1))
    if run.injects("init_constant"):
        filled_([model], 0.01)
    if run.injects("saturated_activation"):
        for layer in model:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.normal_(layer.weight, std=2.0)
    return model


def _data(run: Run) -> Split:
    data = digits(scaled=False)
    mean, deviation = data.inputs.mean(), data.inputs.std()

    def scaled(pixels: Tensor) -> Tensor:
        # Without scaling they are those of an image of 8 bits.
        return 16 * pixels if run.injects("missing_normalisation") else (pixels - mean) / deviation

    data = data._replace(inputs=scaled(data.inputs), valid_inputs=scaled(data.valid_inputs))
    if run.injects("labels_constant"):
        return constant(data)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.1, lr_too_high=2.0),
        momentum=0.9,
        nesterov=True,
        weight_decay=run.pick(1e-4, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 150, gamma=0.3),
        steps=250,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN of LeNet's kind, tanh, average pooling, SGD with Nesterov momentum, steps down",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "2 in place of 0.1",
        "no_activation": "LogSoftmax ahead of NLLLoss is missing",
        "double_activation": "softmax ahead of LogSoftmax",
        "init_constant": "all parameters are 0.01",
        "saturated_activation": "weights are drawn with a standard deviation of 2",
        "missing_normalisation": "pixels are 0 to 255",
        "labels_constant": "all training labels are the same",
        "overfit": "60 rows for training, no weight decay",
    },
)
