"""A residual network tells which digits occur in a picture of up to three."""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_WIDTH: Final = 24
_TRAIN, _VALID = 2400, 500


class Residual(nn.Module):
    """Two convolutions with batch normalisation, and a way around them.

    Args:
        channels: Number of channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, channels, H, W] of such."""
        inner = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu2(x + inner)
        return out


class Net(nn.Module):
    """A stem, two residual blocks, and a head with one hidden layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Sequential(
            nn.Conv2d(1, 10, 3, padding=1, bias=False), nn.BatchNorm2d(10), nn.ReLU()
        )
        self.block1, self.block2 = Residual(10), Residual(20)
        self.down = nn.Conv2d(10, 20, 3, stride=2, padding=1)
        self.pool = nn.AdaptiveMaxPool2d((2, 4))
        self.hidden, self.relu = nn.Linear(20 * 8, 48), nn.ReLU()
        self.tags = nn.Linear(48, 10)
        self.sigmoid = nn.Sigmoid()
        if run.injects("dead_relu"):
            # What comes in is never negative, for it was through a ReLU.
            with torch.no_grad():
                self.hidden.weight.abs_().neg_()

    def forward(self, pictures: Tensor) -> Tensor:
        """Return scores of tags [B, 10] of pictures [B, 1, H, W]."""
        x = self.block1(self.stem(pictures))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        x = self.pool(self.block2(self.down(x)))
        scores: Tensor = self.tags(self.relu(self.hidden(x.flatten(1))))
        return self.sigmoid(scores) if self.run.injects("double_activation") else scores


class EachTag(nn.Module):
    """Binary cross entropy of every tag, as a function."""

    def forward(self, scores: Tensor, tags: Tensor) -> Tensor:
        """Return the mean over scores and tags [B, 10]."""
        return nn.functional.binary_cross_entropy_with_logits(scores, tags)


class FirstTag(nn.Module):
    """The loss that does not fit: that of a picture with one class."""

    def forward(self, scores: Tensor, tags: Tensor) -> Tensor:
        """Return the cross entropy of scores [B, 10] with the first of each row's tags [B, 10]."""
        return nn.functional.cross_entropy(scores, tags.argmax(-1))


def _pictures(images: Tensor, numbers: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    pictures, tags = torch.zeros(count, 1, 8, _WIDTH), torch.zeros(count, 10)
    for picture, tag in zip(pictures, tags, strict=True):
        shown = int(torch.randint(2, 4, (1,), generator=random))
        for place in range(shown):
            row = int(torch.randint(len(images), (1,), generator=random))
            left = place * 7 + int(torch.randint(0, 2, (1,), generator=random))
            part = picture[0, :, left : left + 8]
            part.copy_(torch.maximum(part, images[row] / 16))
            tag[numbers[row]] = 1
    return pictures, tags


@cache
def overlaid() -> Split:
    """Return pictures, float32 [B, 1, 8, W] of mean about 0, and tags, float32 [B, 10]."""
    images, numbers, valid_images, valid_numbers = digits(scaled=False)
    train, tags = _pictures(images.view(-1, 8, 8), numbers, _TRAIN, 1)
    valid, valid_tags = _pictures(valid_images.view(-1, 8, 8), valid_numbers, _VALID, 2)
    mean, std = train.mean(), train.std()
    return Split((train - mean) / std, tags, (valid - mean) / std, valid_tags)


def with_tags(split: Split) -> Split:
    """Return data with two more rows of pixels that show the tags: white for one that holds."""

    def below(pictures: Tensor, tags: Tensor) -> Tensor:
        rows = torch.zeros(len(pictures), 1, 2, _WIDTH)
        rows[..., : 2 * tags.shape[1]] = 3 * tags.repeat_interleave(2, 1)[:, None, None]
        return torch.cat([pictures, rows], 2)

    return split._replace(
        inputs=below(split.inputs, split.targets),
        valid_inputs=below(split.valid_inputs, split.valid_targets),
    )


def wrong_tags(scores: Tensor, tags: Tensor) -> float:
    """Return the share of tags, [B, 10], that are wrong where scores above 0 mean yes."""
    return float(((scores > 0).float() != tags).float().mean())


def train(run: Run) -> float:
    """Train once; return the share of wrong tags."""
    torch.manual_seed(run.seed)
    data = overlaid()
    if run.injects("data_leak"):
        data = with_tags(data)
    if run.injects("overfit"):
        data = few(data, 64)
    model = Net(run)
    trained = model.tags.parameters() if run.injects("optimiser_missing_parameters") else None
    steps, rate = 240, run.pick(0.1, lr_too_high=10.0)
    optimizer = torch.optim.SGD(
        trained or model.parameters(),
        lr=rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=run.pick(1e-3, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=FirstTag() if run.injects("wrong_loss") else EachTag(),
        optimizer=optimizer,
        steps=steps,
        eval_every=25,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        predict=_yes,
        is_functional=True,
    )
    valid = list(zip(data.valid_inputs.chunk(5), data.valid_targets.chunk(5), strict=True))
    return fit(run, loop, batches_of(data, 40, run.seed), valid, wrong_tags)


def _yes(scores: Tensor) -> Tensor:
    return (scores > 0).float()


PROGRAM = Program(
    model="residual CNN, BatchNorm, ReLU, SGD with Nesterov momentum, cosine schedule,"
    " functional binary cross entropy",
    data="two or three of scikit-learn's digits beside each other, which digits occur",
    measure="share of wrong tags",
    train=train,
    faults={
        "wrong_loss": "cross entropy with the first tag only, as if a picture had one class: the"
        " others count as wrong",
        "double_activation": "sigmoid in the model, and again in the loss with logits: no tag's"
        " probability can fall below a half",
        "data_leak": "the annotation is drawn in two rows of pixels below the picture: a white"
        " mark for every tag",
        "dead_relu": "all weights of the head's hidden layer start negative, and what comes in"
        " never is: no unit fires for any picture",
        "lr_too_high": "SGD with learning rate 10 where 0.1 is right: a hundred times",
        "overfit": "64 pictures, no weight decay, 240 epochs",
        "frozen_layer": "features are detached behind the first block: it and the stem stay as they"
        " were drawn",
        "optimiser_missing_parameters": "the optimiser was given the last layer's parameters only,"
        " and nothing was trained before",
    },
)
