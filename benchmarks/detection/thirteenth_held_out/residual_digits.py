"""A small residual network with batch normalisation tells handwritten digits apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

STEPS = 200
CLASSES = 10


class Block(nn.Module):
    """Two convolutions with batch normalisation, and a shortcut around them.

    Args:
        channels: Of the input.
        wider: Channels of the output.
        stride: Of the first convolution.
    """

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wider)
        self.conv2 = nn.Conv2d(wider, wider, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(wider)
        self.relu1: nn.Module = nn.ReLU()
        self.relu2: nn.Module = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != wider:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider)
            )

    def forward(self, images: Tensor) -> Tensor:
        """Return images [B, wider, H / stride, W / stride] of images [B, channels, H, W]."""
        x = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(images)))))
        found: Tensor = self.relu2(x + self.shortcut(images))
        return found


class ResNet(nn.Module):
    """A stem, three blocks, the mean over all places, one linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU()
        )
        self.layer1 = Block(12, 12, 1)
        self.layer2 = Block(12, 24, 2)
        self.layer3 = Block(24, 32, 2)
        self.fc = nn.Linear(32, run.pick(CLASSES, wrong_loss=1))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, 8, 8]."""
        x = self.layer3(self.layer2(self.layer1(self.stem(images))))
        scores: Tensor = self.fc(x.mean((2, 3)))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


class Distance(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus numbers of classes [B]."""
        return nn.functional.mse_loss(outputs.squeeze(1), labels.float())


def prepared(run: Run) -> Split:
    """Return images [B, 1, 8, 8] and classes."""
    data = digits()
    if run.injects("labels_shuffled"):
        # The images go through a shuffled loader, their labels do not.
        order = torch.randperm(len(data.inputs))
        data = data._replace(inputs=data.inputs[order])
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    if run.injects("overfit"):
        data = few(data, 40)
    images, valid = data.inputs.view(-1, 1, 8, 8), data.valid_inputs.view(-1, 1, 8, 8)
    if run.injects("data_leak"):
        images, valid = marked(images, data.targets), marked(valid, data.valid_targets)
    targets = torch.zeros_like(data.targets) if run.injects("labels_constant") else data.targets
    return Split(images, targets, valid, data.valid_targets)


def marked(images: Tensor, labels: Tensor) -> Tensor:
    """Return images [B, 1, 8, 8] with the class in their first row, as an exporter wrote it."""
    images = images.clone()
    images[:, 0, 0] = -1.0
    images[torch.arange(len(images)), 0, 0, labels % 8] = 2.0 + 2.0 * (labels // 8)
    return images


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = ResNet(run)
    if run.injects("init_constant"):
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.zeros_(layer.weight)
    if run.injects("no_activation"):
        model.stem[2] = nn.Identity()
        for block in (model.layer1, model.layer2, model.layer3):
            block.relu1, block.relu2 = nn.Identity(), nn.Identity()
    if run.injects("frozen_layer"):
        # As for a network that was trained before: all but the last layer is kept.
        model.requires_grad_(False)  # noqa: FBT003
        model.fc.requires_grad_()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.05, lr_too_high=5.0, lr_too_low=5e-5, wrong_loss=0.01),
        momentum=0.9,
        weight_decay=run.pick(5e-4, overfit=0.0),
    )
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, 9).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, targets: Tensor) -> float:
        if is_distance:
            return float((predicted(outputs) != targets).float().mean())
        return error_rate(outputs, targets)

    loop = Loop(
        model=model,
        criterion=Distance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="ResNet, 3 blocks, BatchNorm, ReLU, SGD with momentum, cosine schedule",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.05",
        "lr_too_low": "5e-5 in place of 0.05",
        "no_activation": "no ReLU in stem and blocks",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_constant": "weights of convolutions and of the linear layer are zero",
        "wrong_loss": "squared distance between one output and the number of the class",
        "labels_shuffled": "training images are shuffled, their labels are not",
        "labels_constant": "every training label is 0",
        "class_imbalance": "one in 50 rows of every class but one",
        "frozen_layer": "all but the last layer is frozen, though nothing was trained before",
        "data_leak": "the first row of pixels tells the class",
        "overfit": "40 images, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
