"""A small U-Net finds nuclei in simulated images of a microscope."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

SIDE, ROWS, HELD_OUT = 20, 480, 120


def images(count: int, random: torch.Generator, nuclei: Tensor) -> tuple[Tensor, Tensor]:
    """Return images and masks of nuclei, float32 [count, 1, 20, 20].

    Args:
        count: How many.
        random: For everything.
        nuclei: How many nuclei are in each image, at most 4, int64 [count].
    """
    places = torch.arange(SIDE, dtype=torch.float32)
    image, mask = torch.zeros(count, SIDE, SIDE), torch.zeros(count, SIDE, SIDE)
    for number in range(4):
        shape = torch.rand(count, 5, 1, 1, generator=random)
        y, x = (3 + shape[:, part] * (SIDE - 6) for part in (0, 1))
        tall, wide = (2 + 2.5 * shape[:, part] for part in (2, 3))
        away = ((places[:, None] - y) / tall).square() + ((places - x) / wide).square()
        inside = (away < 1) & (number < nuclei[:, None, None])
        image = torch.where(inside, 0.45 + 0.4 * shape[:, 4], image)
        mask = mask.maximum(inside.float())
    image = functional.avg_pool2d(image[:, None], 3, 1, 1)
    light = torch.rand(count, 1, 1, 1, generator=random) * (places / SIDE - 0.5)
    noise = 0.15 * torch.randn(image.shape, generator=random)
    return image + 0.5 * light + noise, mask[:, None]


def _data(run: Run) -> Split:
    random = torch.Generator().manual_seed(1)
    many = torch.randint(2, 5, (ROWS + HELD_OUT,), generator=random)
    if run.injects("class_imbalance"):
        many[:ROWS] = (torch.arange(ROWS) % 80 == 0).long()
    x, y = images(ROWS + HELD_OUT, random, many)
    x = (x - x[:ROWS].mean()) / x[:ROWS].std()
    train_y = y[:ROWS]
    if run.injects("labels_shuffled"):
        # Files of images are in the order of their numbers, those of masks of their names.
        train_y = train_y[sorted(range(ROWS), key=str)]
    if run.injects("labels_constant"):
        train_y = (train_y > 127).float()  # noqa: PLR2004 - a threshold for masks of 0 and 255
    return Split(x[:ROWS], train_y, x[ROWS:], y[ROWS:])


class UNet(nn.Module):
    """Two levels, with a way across."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.enter = nn.Conv2d(1, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 3, padding=1)
        self.deep = nn.Conv2d(16, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join = nn.Conv2d(16, 8, 3, padding=1)
        self.mask = nn.Conv2d(8, 1, 1)
        for layer in (self.enter, self.down, self.deep, self.join):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(4))
        if run.injects("dead_relu"):
            with torch.no_grad():
                self.join.weight.abs_().neg_()
                self.down.weight.abs_().neg_()

    def forward(self, image: Tensor) -> Tensor:
        """Return scores [B, 1, 20, 20] of images [B, 1, 20, 20]."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            first = self.relus[0](self.enter(image))
            x = self.relus[1](self.down(functional.max_pool2d(first, 2)))
            x = self.relus[2](self.deep(x))
            x = torch.cat([first, self.up(x).relu()], 1)
            x = self.relus[3](self.join(x))
        scores: Tensor = self.mask(x)
        return scores.sigmoid() if self.run.injects("double_activation") else scores


class Loss(nn.Module):
    """Binary cross entropy and 1 - Dice."""

    def forward(self, scores: Tensor, masks: Tensor) -> Tensor:
        """Return the loss of scores and masks [B, 1, 20, 20]."""
        found = scores.sigmoid()
        both = (found * masks).sum((1, 2, 3))
        dice = (2 * both + 1) / (found.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)
        return functional.binary_cross_entropy_with_logits(scores, masks) + 1 - dice.mean()


class OneClass(nn.Module):
    """Cross entropy over a single channel: its softmax is 1 everywhere."""

    def forward(self, scores: Tensor, masks: Tensor) -> Tensor:
        """Return the loss, always 0, of scores and masks [B, 1, 20, 20]."""
        return functional.cross_entropy(scores, masks)


def missed(scores: Tensor, masks: Tensor) -> float:
    """Return 1 - Dice over all pixels."""
    found = (scores > 0).float()
    return 1 - float(2 * (found * masks).sum() / (found.sum() + masks.sum() + 1))


def train(run: Run) -> float:
    """Train once; return 1 - Dice."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = UNet(run)
    loop = Loop(
        model=model,
        criterion=OneClass() if run.injects("wrong_loss") else Loss(),
        optimizer=torch.optim.AdamW(
            model.parameters(), lr=run.pick(3e-3, lr_too_high=1.0), weight_decay=0.01
        ),
        steps=200,
        eval_every=40,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 24, run.seed), valid, missed)


PROGRAM = Program(
    model="U-Net, 2 levels, ReLU, AdamW, cross entropy and Dice",
    data="simulated nuclei",
    measure="1 - Dice",
    train=train,
    faults={
        "lr_too_high": "learning rate 1 instead of 3e-3, 330 times too high",
        "double_activation": "the model ends in a sigmoid, and the loss has one, too",
        "wrong_loss": "cross entropy of classes with one channel: the loss is always zero",
        "labels_shuffled": "masks are sorted by the text of their number, images by the number",
        "labels_constant": "masks of 0 and 1 are compared with 127: all are empty",
        "class_imbalance": "one in 80 training images has a nucleus; those of validation have 2-4",
        "frozen_layer": "all but the last 1 x 1 convolution runs under no_grad, untrained",
        "dead_relu": "weights of two convolutions of non-negative inputs begin negative",
    },
)
