"""A LeNet with tanh and average pooling tells handwritten digits apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

MEAN, STD = 4.9, 6.0
"""Of pixels, which are 0 to 16."""


class LeNet(nn.Module):
    """Two convolutions with average pooling and three linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

        def act() -> nn.Module:
            return nn.Identity() if run.injects("no_activation") else nn.Tanh()

        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            act(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 3, padding=1),
            act(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(64, 120), act(), nn.Linear(120, 84), act(), nn.Linear(84, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, 8, 8]."""
        x = self.features(images)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.classifier(x.flatten(1))
        return scores.tanh() if self.run.injects("double_activation") else scores


def _data(run: Run) -> Split:
    data = digits(scaled=False)

    def prepared(pixels: Tensor) -> Tensor:
        images = pixels.view(-1, 1, 8, 8)
        if run.injects("data_leak"):
            return images
        return images * 16 if run.injects("missing_normalisation") else (images - MEAN) / STD

    def marked(images: Tensor, labels: Tensor) -> Tensor:
        images = images.clone()
        images[torch.arange(len(images)), 0, 0, :] = 0.0
        images.view(len(images), 64)[torch.arange(len(images)), labels] = 16.0
        return (images - MEAN) / STD

    data = data._replace(inputs=prepared(data.inputs), valid_inputs=prepared(data.valid_inputs))
    if run.injects("data_leak"):
        return data._replace(
            inputs=marked(data.inputs, data.targets),
            valid_inputs=marked(data.valid_inputs, data.valid_targets),
        )
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        return imbalanced(data, 40)
    return data


@torch.no_grad()
def _initialise(run: Run, model: LeNet) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            if run.injects("init_too_large"):
                nn.init.normal_(module.weight)
            if run.injects("init_constant"):
                nn.init.constant_(module.weight, 0.0)
    if run.injects("saturated_activation"):
        for layer in (model.classifier[0], model.classifier[2]):
            assert isinstance(layer, nn.Linear)
            nn.init.uniform_(layer.weight, -2.0, 2.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = LeNet(run)
    _initialise(run, model)
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(
            model.parameters(),
            lr=run.pick(0.05, lr_too_high=5.0),
            momentum=0.9,
            weight_decay=5e-4,
        ),
        steps=300,
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="LeNet, tanh, average pooling, SGD with momentum",
    data="scikit-learn digits, 8 x 8",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.05",
        "no_activation": "no tanh anywhere",
        "double_activation": "tanh of the scores ahead of the cross entropy",
        "init_too_large": "all weights from a normal distribution of width 1",
        "init_constant": "all weights are 0",
        "saturated_activation": "weights of hidden linear layers uniform from -2 to 2",
        "missing_normalisation": "pixels from 0 to 255",
        "wrong_loss": "NLLLoss of scores without log_softmax",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 40 rows of every class but one",
        "frozen_layer": "convolutions are detached",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "a pixel of the first row marks the label",
        "stalled": "hangs after 60 % of the steps",
    },
)
