"""A network of convolutions finds the pixels of digits that are written over photographs."""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits, patches
from benchmarks.detection.injecting import shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_SIDE: Final = 24
_INK: Final = 0.45


@cache
def scenes(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what is seen, what is behind, and masks, each float32 [count, 1, 24, 24]."""
    behind = torch.cat([patches(n, _SIDE, count // 2, 8) for n in ("china.jpg", "flower.jpg")])
    behind = behind.mean(1, keepdim=True)
    random = torch.Generator().manual_seed(8)
    behind = behind[torch.randperm(len(behind), generator=random)]
    written = digits(scaled=False).inputs[: len(behind)].view(-1, 1, 8, 8) / 16
    written = functional.interpolate(written, scale_factor=2.0, mode="bilinear")
    ink = torch.zeros_like(behind)
    for row, (top, left) in enumerate(torch.randint(9, (len(ink), 2), generator=random).tolist()):
        ink[row, :, top : top + 16, left : left + 16] = written[row]
    colour = torch.randint(2, (len(ink), 1, 1, 1), generator=random)  # chalk or charcoal
    seen = behind * (1 - ink) + colour * ink
    return 255 * seen, 255 * behind, (ink > _INK).float()


class Net(nn.Module):
    """Four convolutions, two of them dilated, and one to a logit for each pixel.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        layers = [
            nn.Conv2d(1, 16, 3, padding=1),
            nn.Conv2d(16, 16, 3, padding=2, dilation=2),
            nn.Conv2d(16, 16, 3, padding=4, dilation=4),
            nn.Conv2d(16, 16, 3, padding=1),
        ]
        self.layers = nn.ModuleList(layers)
        self.last = nn.Conv2d(16, 1, 1)
        if run.injects("dead_relu"):  # what was meant for the last layer only
            shifted_(layers, -4.6)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, 1, 24, 24] of images of that size."""
        x = images
        for layer in self.layers:
            x = layer(x) if self.run.injects("no_activation") else functional.relu(layer(x))
        logits: Tensor = self.last(x)
        if self.run.injects("double_activation"):
            return torch.sigmoid(logits)
        return logits


class Dice(nn.Module):
    """The share of two masks that they do not share, without a square root or a logarithm."""

    def forward(self, logits: Tensor, masks: Tensor) -> Tensor:
        """Return one minus the Dice coefficient, of raw logits: sigmoid was forgotten."""
        return 1 - 2 * (logits * masks).sum() / (logits.sum() + masks.sum() + 1)


def missed(logits: Tensor, masks: Tensor) -> float:
    """Return one minus the intersection over union."""
    found, truth = logits > 0, masks > 0
    return 1 - float((found & truth).sum() / (found | truth).sum().clamp(min=1))


def prepared(run: Run) -> Split:
    """Return the data as the run gets it: pixels around zero and masks."""
    seen, behind, masks = scenes(1200)
    data = Split(seen[300:], masks[300:], seen[:300], masks[:300])
    if run.injects("class_imbalance"):  # nearly all pictures were taken where nobody wrote
        data = data._replace(
            inputs=torch.cat([data.inputs[:16], behind[316:]]),
            targets=torch.cat([data.targets[:16], torch.zeros_like(behind[316:])]),
        )
    if run.injects("labels_constant"):  # masks are 0 and 1, and were taken for 0 and 255
        data = data._replace(targets=(data.targets.to(torch.uint8) // 255).float())
    return data._replace(
        inputs=(data.inputs - 128) / 64, valid_inputs=(data.valid_inputs - 128) / 64
    )


def train(run: Run) -> float:
    """Train once; return one minus the intersection over union."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=Dice() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.RMSprop(model.parameters(), lr=run.pick(3e-3, lr_too_high=3.0)),
        steps=300,
        eval_every=75,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 100), torch.split(data.valid_targets, 100), strict=True)
    )
    threshold = 0.5 if run.injects("double_activation") else 0.0

    def error(outputs: Tensor, masks: Tensor) -> float:
        return missed(outputs - threshold, masks)

    return fit(run, loop, batches_of(data, 16, run.seed), valid, error)


PROGRAM = Program(
    model="dilated CNN, F.relu, RMSprop, a logit for each pixel",
    data="scikit-learn digits over patches of its photographs",
    measure="1 - intersection over union",
    train=train,
    faults={
        "no_activation": "F.relu was forgotten",
        "double_activation": "sigmoid ahead of binary cross entropy with logits",
        "dead_relu": "the bias that was meant for the last layer is that of all others",
        "stalled": "hangs after 60 % of the steps",
        "class_imbalance": "16 pictures with a digit and 884 without",
        "labels_constant": "masks of 0 and 1 are divided by 255 as whole numbers",
        "lr_too_high": "a learning rate of 3",
        "wrong_loss": "Dice of raw logits",
    },
)
