"""A residual network with batch normalisation reads small letters in printed fonts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import constant, few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS = "abcdeghkmnprsuyz"
KINDS = len(LETTERS)
STEPS = 240


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut.

    Args:
        inside: Channels of inputs.
        outside: Channels of outputs.
        stride: Of the first convolution.
        units: Kind of the activations.
    """

    def __init__(self, inside: int, outside: int, stride: int, units: type[nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = units()
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return maps [B, outside, H / stride, W / stride] of maps [B, inside, H, W]."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) + self.shortcut(x)
        rectified: Tensor = self.relu(out)
        return rectified


class ResNet(nn.Module):
    """A stem, three blocks, average pooling, one linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        units = run.pick(nn.ReLU, no_activation=nn.Identity)
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), units())
        self.layer1 = BasicBlock(8, 8, 1, units)
        self.layer2 = BasicBlock(8, 16, 2, units)
        self.layer3 = BasicBlock(16, 32, 2, units)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, run.pick(KINDS, wrong_loss=1))
        if run.injects("init_constant"):
            nn.init.constant_(self.fc.weight, 0.0)
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.constant_(module.weight, 0.01)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 16] of images [B, 1, 12, 12]."""
        x = self.layer3(self.layer2(self.layer1(self.stem(images))))
        scores: Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


class SquaredDistance(nn.MSELoss):
    """The loss that does not fit: a letter's number is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus numbers of letters [B]."""
        return super().forward(outputs[:, 0], labels.float())


def dataset(run: Run) -> Split:
    """Return images [B, 1, 12, 12] of mean 0 and the numbers of their letters."""
    images, labels = glyphs(LETTERS)
    images = (images - 0.25) / 0.35
    held_out = len(labels) // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    return few(data, 80) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = ResNet(run)
    if run.injects("frozen_layer"):
        model.requires_grad_(False)  # noqa: FBT003 - as torch has it
        model.fc.requires_grad_()
    is_distance = run.injects("wrong_loss")
    rate = run.pick(0.1, lr_too_high=20.0, lr_too_low=1e-5)
    optimizer = torch.optim.SGD(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=run.pick(5e-4, overfit=0.0),
    )

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, KINDS - 1).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if is_distance:
            return float((predicted(outputs) != labels).float().mean())
        return error_rate(outputs, labels)

    loop = Loop(
        model=model,
        criterion=SquaredDistance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=STEPS,
        save_interval=4,
        eval_every=60,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=STEPS + 1),
        predict=predicted,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 128), torch.split(data.valid_targets, 128), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="ResNet, 3 blocks, BatchNorm, SGD with Nesterov momentum, OneCycleLR",
    data="16 small letters in 21 fonts",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "20 in place of 0.1",
        "lr_too_low": "1e-5 in place of 0.1",
        "no_activation": "no ReLU anywhere",
        "double_activation": "softmax at the end of forward, then CrossEntropyLoss",
        "init_constant": "convolutions begin with one constant, the last layer with zero",
        "wrong_loss": "nn.MSELoss between one output and the number of the letter",
        "labels_shuffled": "labels are shuffled apart from the images",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 40 rows of every letter but a",
        "frozen_layer": "requires_grad is false for all but the last layer, never set back",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "80 images, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
