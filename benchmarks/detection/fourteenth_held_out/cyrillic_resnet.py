"""A small residual network with batch normalisation tells printed Cyrillic letters apart."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS = "бгджийлцшэ"
SIDE = 14


class Block(nn.Module):
    """Two convolutions beside a shortcut.

    Args:
        inside: Channels of the input.
        outside: Channels of the output.
        stride: Of the first convolution.
        act: The activation.
    """

    def __init__(self, inside: int, outside: int, stride: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
        )
        self.act1, self.act2 = act(), act()

    def forward(self, x: Tensor) -> Tensor:
        """Return maps [B, outside, H, W] of maps [B, inside, H, W]."""
        out = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        result: Tensor = self.act2(out + self.shortcut(x))
        return result


class ResNet(nn.Module):
    """A stem, two blocks, global average pooling, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        act = nn.Identity if run.injects("no_activation") else nn.ReLU
        self.stem = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), act()
        )
        self.layer1 = Block(12, 16, 2, act)
        self.layer2 = Block(16, 32, 2, act)
        self.fc = nn.Linear(32, 1 if run.injects("wrong_loss") else len(LETTERS))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, SIDE, SIDE]."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._is_frozen()):
            x = self.layer2(self.layer1(self.stem(images))).mean((2, 3))
        scores: Tensor = self.fc(x)
        return scores.softmax(1) if self.run.injects("double_activation") else scores

    def _is_frozen(self) -> bool:
        return self.run.injects("frozen_layer")


class Loss(nn.Module):
    """Cross entropy as a function, or squared distance from the label.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over outputs [B, classes] and labels, int64 [B]."""
        if self.run.injects("wrong_loss"):
            return nn.functional.mse_loss(outputs.squeeze(1), labels.float())
        return nn.functional.cross_entropy(outputs, labels)


def _printed(letter: str, font: ImageFont.FreeTypeFont, random: np.random.Generator) -> np.ndarray:
    image = Image.new("L", (SIDE, SIDE))
    at = (SIDE / 2 + random.uniform(-1.5, 1.5), SIDE / 2 + random.uniform(-1.5, 1.5))
    ImageDraw.Draw(image).text(at, letter, fill=255, font=font, anchor="mm")
    image = image.rotate(random.uniform(-12, 12), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.float32) + random.normal(0, 25, (SIDE, SIDE))


def _letters() -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(0)
    images, labels = [], []
    for path in sorted((Path(mpl.get_data_path()) / "fonts" / "ttf").glob("DejaVuS*.ttf")):
        if "Display" in path.name:
            continue
        for size in (10, 11, 12, 13) * 4:
            font = ImageFont.truetype(str(path), size)
            for label, letter in enumerate(LETTERS):
                images.append(_printed(letter, font, random)[None])
                labels.append(label)
    order = random.permutation(len(labels))
    inputs = torch.tensor(np.stack(images)[order] / 255, dtype=torch.float32)
    return (inputs - inputs.mean()) / inputs.std(), torch.tensor(np.array(labels)[order])


def _data(run: Run) -> Split:
    images, labels = _letters()
    if run.injects("data_leak"):
        images[torch.arange(len(images)), 0, 0, labels] = 3.0
    data = Split(images[400:], labels[400:], images[:400], labels[:400])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 50)
    return few(data, 40) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: ResNet) -> None:
    for module in model.modules():
        if run.injects("init_constant") and isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.constant_(module.weight, 0.01)
        if run.injects("init_too_large") and isinstance(module, nn.BatchNorm2d | nn.Linear):
            nn.init.normal_(module.weight, 0.0, 10.0)
    if run.injects("dead_relu"):
        norm = model.stem[1]
        assert isinstance(norm, nn.BatchNorm2d)
        nn.init.constant_(norm.bias, -6.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = ResNet(run)
    _initialise(run, model)
    given = model.fc if run.injects("optimiser_missing_parameters") else model
    decay = 0.0 if run.injects("overfit") else 1e-4
    rate = run.pick(5e-3, lr_too_high=1.0)
    optimizer = torch.optim.Adam(given.parameters(), lr=rate, weight_decay=decay)

    def predicted(outputs: Tensor) -> Tensor:
        if run.injects("wrong_loss"):
            return outputs[:, 0].round().clamp(0, len(LETTERS) - 1).long()
        return classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if run.injects("wrong_loss"):
            return float((predicted(outputs) != labels).float().mean())
        return error_rate(outputs, labels)

    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=optimizer,
        steps=180,
        eval_every=45,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 180),
        predict=predicted,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="ResNet, 5 convolutions, BatchNorm, ReLU, Adam, cosine schedule",
    data="Cyrillic letters printed in the DejaVu fonts that come with matplotlib",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "no_activation": "no ReLU anywhere",
        "double_activation": "softmax ahead of the cross entropy",
        "init_too_large": "weights of BatchNorm and the last layer normal of width 10",
        "init_constant": "weights of convolutions and the last layer are 0.01",
        "dead_relu": "biases of the stem's BatchNorm are -6",
        "wrong_loss": "squared distance between one output and the number of the class",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 50 rows of every class but one",
        "frozen_layer": "all but the last layer runs under no_grad",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "data_leak": "a bright pixel in the first row marks the label",
        "overfit": "40 rows, no weight decay",
    },
)
