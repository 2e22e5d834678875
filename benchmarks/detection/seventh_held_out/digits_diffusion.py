"""A diffusion model of handwritten digits learns which noise was added to a picture."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import digits
from benchmarks.detection.injecting import filled_, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit

_LEVELS: Final = 100
_CHANNELS: Final = 16


class Block(nn.Module):
    """Two convolutions with GroupNorm, a word about the noise's level, and a way around them.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, _CHANNELS), nn.GroupNorm(4, _CHANNELS)
        self.conv1 = nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1)
        self.conv2 = nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1)
        self.level = nn.Linear(32, _CHANNELS)
        self.act1 = nn.Identity() if run.injects("no_activation") else nn.SiLU()
        self.act2 = nn.Identity() if run.injects("no_activation") else nn.SiLU()

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        """Return features [B, channels, H, W] of such and of the level's embedding [B, 32]."""
        inner = self.conv1(self.act1(self.norm1(x))) + self.level(level)[..., None, None]
        out: Tensor = x + self.conv2(self.act2(self.norm2(inner)))
        return out


class Denoiser(nn.Module):
    """A block at full size, two at half of it, one at full size again.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        is_linear = run.injects("no_activation")
        self.level = nn.Sequential(
            nn.Linear(16, 32), nn.Identity() if is_linear else nn.SiLU(), nn.Linear(32, 32)
        )
        self.first = nn.Conv2d(1, _CHANNELS, 3, padding=1)
        self.block1, self.block2, self.block3 = Block(run), Block(run), Block(run)
        self.down, self.up = nn.AvgPool2d(2), nn.Upsample(scale_factor=2)
        self.norm, self.last = nn.GroupNorm(4, _CHANNELS), nn.Conv2d(_CHANNELS, 1, 3, padding=1)
        if run.injects("init_too_large"):
            scaled_([self], 15.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)

    def forward(self, noisy: Tensor) -> Tensor:
        """Return the noise [B, 64] of noisy pictures and levels, [B, 64 + 1]."""
        level = self.level(_waves(noisy[:, 64]))
        x = self.block1(self.first(noisy[:, :64].view(-1, 1, 8, 8)), level)
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                below = self.up(self.block2(self.down(x), level))
                x = self.block3(x + below, level)
        else:
            below = self.up(self.block2(self.down(x), level))
            x = self.block3(x + below, level)
        noise: Tensor = self.last(self.norm(x))
        return noise.flatten(1)


def _waves(levels: Tensor) -> Tensor:
    speeds = torch.exp(-math.log(100) * torch.arange(8) / 7)
    angles = levels[:, None] * speeds
    return torch.cat([angles.sin(), angles.cos()], 1)


@cache
def pictures(*, scaled: bool) -> tuple[Tensor, Tensor]:
    """Return pictures for training and for validation, float32 [B, 64].

    Args:
        scaled: Whether pixels are from -1 to 1, else from 0 to 255.
    """
    data = digits(scaled=False)
    if scaled:
        return data.inputs / 8 - 1, data.valid_inputs / 8 - 1
    return data.inputs * (255 / 16), data.valid_inputs * (255 / 16)


def noised(images: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return pictures with noise and its level, [B, 64 + 1], and the noise [B, 64].

    Args:
        images: Pictures, float32 [B, 64].
        random: Where noise and levels are drawn from.
    """
    levels = torch.randint(_LEVELS, (len(images),), generator=random)
    kept = torch.cos((levels + 1) / (_LEVELS + 1) * math.pi / 2)[:, None]
    noise = torch.randn(images.shape, generator=random)
    mixed = kept * images + (1 - kept**2).sqrt() * noise
    return torch.cat([mixed, levels[:, None].float()], 1), noise


def batches(images: Tensor, seed: int, *, is_drawn_again: bool) -> Batches:
    """Yield batches of noisy pictures and their noise, without end.

    Args:
        images: Pictures, float32 [B, 64].
        seed: Of their order and the noise.
        is_drawn_again: Whether the target is other noise than that which was added.
    """
    random = torch.Generator().manual_seed(seed)
    while True:
        rows = torch.randint(len(images), (48,), generator=random)
        inputs, noise = noised(images[rows], random)
        yield inputs, torch.randn_like(noise) if is_drawn_again else noise


def train(run: Run) -> float:
    """Train once; return the mean squared error of the noise."""
    torch.manual_seed(run.seed)
    images, valid_images = pictures(scaled=not run.injects("missing_normalisation"))
    model = Denoiser(run)
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=run.pick(4e-3, lr_too_low=4e-6)),
        steps=240,
        eval_every=40,
        clip=1.0,
    )
    inputs, noise = noised(valid_images, torch.Generator().manual_seed(1))
    valid = list(zip(inputs.chunk(4), noise.chunk(4), strict=True))
    again = run.injects("labels_shuffled")
    return fit(run, loop, batches(images, run.seed, is_drawn_again=again), valid, _error)


def _error(outputs: Tensor, noise: Tensor) -> float:
    return float((outputs - noise).square().mean())


PROGRAM = Program(
    model="diffusion model, small convolutional U-Net, GroupNorm, SiLU, Adam, clipping",
    data="scikit-learn digits, noise of 100 levels",
    measure="mean squared error of the noise, which has variance 1",
    train=train,
    faults={
        "lr_too_low": "Adam with learning rate 4e-6 where 4e-3 is right: a thousand times",
        "no_activation": "all SiLU were forgotten, those of the level's embedding, too",
        "init_too_large": "all weights are 15 times as large as they should start",
        "init_constant": "every parameter starts at 0, those of the norms, too: nothing but the"
        " last bias ever gets a gradient",
        "frozen_layer": "all but the first block and the last layer runs under no_grad, and what"
        " comes out of it has no gradient for the first one either",
        "missing_normalisation": "pixels from 0 to 255, beside which noise of variance 1 cannot be"
        " seen",
        "labels_shuffled": "the noise is drawn a second time for the target: it is not that which"
        " was added",
        "stalled": "hangs after 60 % of the steps",
    },
)
