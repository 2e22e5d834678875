"""LeNet with tanh and average pooling, as in the first course notebook, reads capitals."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import filled_, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS = "ABCDEFGHKMRS"
HELD_OUT = 252


def lenet(run: Run) -> nn.Sequential:
    """Return a network from images [B, 1, 12, 12] to scores [B, 12]."""

    def bend() -> nn.Module:
        return nn.Identity() if run.injects("no_activation") else nn.Tanh()

    layers: list[nn.Module] = [
        nn.Conv2d(1, 6, 5, padding=2),
        bend(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 3),
        bend(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 2 * 2, 64),
        bend(),
        nn.Linear(64, 48),
        bend(),
        nn.Linear(48, len(LETTERS)),
    ]
    if run.injects("double_activation"):
        layers.append(nn.Softmax(dim=1))
    return nn.Sequential(*layers)


def prepared(run: Run) -> Split:
    """Return images [B, 1, 12, 12] from -1 to 1, and classes."""
    images, labels = glyphs(LETTERS)
    images = images * 255.0 if run.injects("missing_normalisation") else (images - 0.5) / 0.5
    data = Split(images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        # All images lie in one folder, and the folder is the class.
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    if run.injects("overfit"):
        data = data._replace(inputs=data.inputs[:36], targets=data.targets[:36])
    return data


def initialise_(run: Run, model: nn.Sequential) -> None:
    """Set the weights to start from."""
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        if run.injects("saturated_activation"):
            nn.init.normal_(layer.weight)
    if run.injects("init_constant"):
        filled_(layers, 0.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = lenet(run)
    initialise_(run, model)
    trained = list(model.parameters())
    if run.injects("frozen_layer"):
        for layer in list(model)[:9]:
            layer.requires_grad_(False)  # noqa: FBT003
    if run.injects("optimiser_missing_parameters"):
        trained = list(model[-1].parameters())
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(
            trained, lr=run.pick(0.05, lr_too_high=5.0, lr_too_low=2e-5), momentum=0.9
        ),
        steps=300,
        predict=classes,
    )
    valid = list(zip(data.valid_inputs.chunk(4), data.valid_targets.chunk(4), strict=True))
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="LeNet, tanh, average pooling, SGD with momentum",
    data="12 capitals in the fonts of matplotlib",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.05",
        "lr_too_low": "2e-5 in place of 0.05",
        "no_activation": "no tanh between the layers",
        "double_activation": "nn.Softmax ahead of a cross entropy that has one",
        "init_constant": "all parameters are zero",
        "saturated_activation": "nn.init.normal_ with its standard deviation of 1 ahead of tanh",
        "missing_normalisation": "pixels from 0 to 255",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "every training label is 0",
        "class_imbalance": "one in 40 rows of every class but one",
        "frozen_layer": "all but the last two layers are frozen, as drawn by chance",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "36 images",
    },
)
