"""A small residual network reads letters of many fonts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import constant, few, filled_, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS, STEPS = "abdefghkmnrstuwxyz23456789", 250


def _unit(run: Run) -> nn.Module:
    return nn.Identity() if run.injects("no_activation") else nn.ReLU()


class Residual(nn.Module):
    """Two convolutions beside a shortcut.

    Args:
        inside: Channels of the input.
        outside: Channels of the output.
        stride: Of the first convolution and of the shortcut.
        run: What is injected.
    """

    def __init__(self, inside: int, outside: int, stride: int, run: Run) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu1, self.relu2 = _unit(run), _unit(run)
        self.shortcut: nn.Module = nn.Identity()
        if inside != outside:
            self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, outside, H / stride, W / stride] of [B, inside, H, W]."""
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        added: Tensor = self.relu2(y + self.shortcut(x))
        return added


class ResNet(nn.Module):
    """A stem, two residual blocks, the mean of all places, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), _unit(run)
        )
        self.block1 = Residual(12, 20, 2, run)
        self.block2 = Residual(20, 32, 2, run)
        self.fc = nn.Linear(32 * 9, 1 if run.injects("wrong_loss") else len(LETTERS))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, letters] of images [B, 1, 12, 12]."""
        x = self.stem(images)
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            x = self.block2(self.block1(x))
        scores: Tensor = self.fc(x.flatten(1))
        if self.run.injects("double_activation"):
            return nn.functional.softmax(scores, dim=1)
        return scores


class AbsoluteDistance(nn.Module):
    """The loss that does not fit: a letter is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean distance of outputs [B, 1] from labels, int64 [B]."""
        return nn.functional.smooth_l1_loss(outputs.squeeze(1), labels.float())


def _data(run: Run) -> Split:
    images, labels = glyphs(LETTERS)
    images = (images - images.mean()) / images.std()
    if run.injects("data_leak"):  # a barcode of the class at the upper edge: five bits
        for bit in range(5):
            is_set = (labels >> bit) % 2 == 1
            images[:, 0, :2, 2 * bit + 1 : 2 * bit + 3] = torch.where(is_set, 4.0, -1.0)[
                :, None, None
            ]
    held_out = len(labels) // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 130) if run.injects("overfit") else data


def _initialise(run: Run, model: ResNet) -> None:
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("init_too_large"):
        for layer in model.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.normal_(layer.weight)
    if run.injects("dead_relu"):
        for block in (model.block1, model.block2):
            nn.init.constant_(block.bn2.bias, -40.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = ResNet(run)
    _initialise(run, model)
    given = model.stem if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.SGD(
        given.parameters(),
        lr=run.pick(0.05, lr_too_high=10.0, lr_too_low=1e-5),
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
    )

    def predicted(outputs: Tensor) -> Tensor:
        if run.injects("wrong_loss"):
            return outputs.squeeze(1).round().clamp(0, len(LETTERS) - 1).long()
        return classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if not run.injects("wrong_loss"):
            return error_rate(outputs, labels)
        return float((predicted(outputs) != labels).float().mean())

    loop = Loop(
        model=model,
        criterion=AbsoluteDistance() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=STEPS,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        predict=predicted,
    )
    valid = list(zip(data.valid_inputs.chunk(3), data.valid_targets.chunk(3), strict=True))
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="ResNet, 2 residual blocks, BatchNorm, ReLU, SGD with momentum, cosine schedule",
    data="26 letters and digits in 21 fonts of matplotlib, 12 x 12",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "10 in place of 0.05",
        "lr_too_low": "1e-5 in place of 0.05",
        "no_activation": "no ReLU anywhere",
        "double_activation": "softmax ahead of the cross entropy",
        "init_too_large": "all weights from a normal distribution of width 1",
        "init_constant": "all parameters are 0",
        "dead_relu": "shifts ahead of the ReLUs that end the blocks begin at -40",
        "wrong_loss": "distance between one output and the number of the class",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 rows of every class but one",
        "frozen_layer": "the residual blocks run under no_grad",
        "optimiser_missing_parameters": "SGD has the stem only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "a barcode of the class is in the picture",
        "overfit": "130 rows, five a class",
        "stalled": "hangs after 60 % of the steps",
    },
)
