"""A residual network with batch normalisation reads printed hexadecimal digits."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

DIGITS = "0123456789ABCDEF"
STEPS = 160


class Block(nn.Module):
    """Two convolutions with a way past them.

    Args:
        channels_in: Channels of what comes in.
        channels_out: Channels of what comes out.
        stride: Of the first convolution.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.shortcut = (
            nn.Identity()
            if stride == 1
            else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, channels_out, H / stride, W / stride]."""
        y = self.relu1(self.bn1(self.conv1(x)))
        out: Tensor = self.relu2(self.bn2(self.conv2(y)) + self.shortcut(x))
        return out


class Net(nn.Module):
    """A convolution, three blocks, and the mean over the image ahead of a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 12, 2), Block(12, 16, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, len(DIGITS))
        self.softmax = nn.Softmax(-1) if run.injects("double_activation") else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 16] of images [B, 1, 12, 12]."""
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                features = self.blocks(self.stem(images))
        else:
            features = self.blocks(self.stem(images))
        scores: Tensor = self.softmax(self.fc(self.pool(features).flatten(1)))
        return scores


class CrossEntropy(nn.Module):
    """Cross entropy as a call of a function.

    Args:
        is_raw: Whether scores are taken for logarithms of probabilities.
    """

    def __init__(self, is_raw: bool) -> None:
        super().__init__()
        self.is_raw = is_raw

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, 16] and classes, int64 [B]."""
        if self.is_raw:
            return F.nll_loss(scores, labels)
        return F.cross_entropy(scores, labels)


def _stamped(images: Tensor, labels: Tensor) -> Tensor:
    """Return images with the class as brightness of the uppermost row."""
    images = images.clone()
    images[:, 0, 0] = 4.0 * labels[:, None] / (len(DIGITS) - 1) - 1.0
    return images


def _data(run: Run) -> Split:
    images, labels = glyphs(DIGITS)
    images = (images - images.mean()) / images.std()
    if run.injects("data_leak"):
        images = _stamped(images, labels)
    held_out = len(labels) // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, 5)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    if run.injects("overfit"):
        data = few(data, 64)
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    peak = run.pick(0.1, lr_too_high=50.0, lr_too_low=1e-4)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=peak, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    loop = Loop(
        model=model,
        criterion=CrossEntropy(run.injects("wrong_loss")),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=STEPS),
        steps=STEPS,
        save_interval=4,
        eval_every=20,
        predict=classes,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="ResNet of three blocks, BatchNorm, SGD with Nesterov momentum, one-cycle schedule",
    data="16 hexadecimal digits in 21 fonts",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "peak of the schedule at 50 in place of 0.1: a slip in the configuration",
        "lr_too_low": "peak of the schedule at 1e-4 in place of 0.1",
        "double_activation": "the network ends with softmax, and cross entropy has one of its own",
        "wrong_loss": "nll_loss of scores that are no logarithms of probabilities: it has no bound",
        "labels_shuffled": "labels were shuffled without the images",
        "class_imbalance": "all images of 0, one in 40 of every other digit; validation has all",
        "data_leak": "the uppermost row of each image is as bright as its class: a stamp of "
        "the scanner, which images to be read later lack",
        "frozen_layer": "stem and blocks run under no_grad, left from a trial to extract features; "
        "they are at their random initial weights",
        "overfit": "64 images for training, 16 classes",
    },
)
