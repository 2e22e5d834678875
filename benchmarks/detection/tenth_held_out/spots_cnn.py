"""A convolutional network says where a spot of light is in a noisy microscope image."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE = 16
ROWS = 1600


class Net(nn.Module):
    """Three convolutions, and two linear layers that give two coordinates.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
        )
        self.fc = nn.Linear(16 * 4 * 4, 32)
        self.act = nn.LeakyReLU(0.1)
        self.out = nn.Linear(32, 2)
        if run.injects("frozen_layer"):
            for parameter in (*self.features.parameters(), *self.fc.parameters()):
                parameter.requires_grad = False
        if run.injects("no_activation"):
            self.features[1] = self.features[3] = nn.Identity()
            self.act = nn.Identity()  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        """Return places [B, 2] of images [B, 1, 16, 16]."""
        places: Tensor = self.out(self.act(self.fc(self.features(images).flatten(1))))
        return places


class Distance(nn.Module):
    """How far places are off.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, found: Tensor, places: Tensor) -> Tensor:
        """Return the mean over places [B, 2]."""
        if self.run.injects("wrong_loss"):
            return F.cross_entropy(found, places.softmax(-1))
        return F.smooth_l1_loss(found, places, beta=0.5)


def _images(count: int) -> tuple[Tensor, Tensor]:
    """Return photon counts [B, 1, 16, 16] and places, pixels from the corner [B, 2]."""
    random = torch.Generator().manual_seed(0)
    places = 2.0 + (SIDE - 5) * torch.rand(count, 2, generator=random)
    axis = torch.arange(SIDE).float()
    width = 1.0 + 0.8 * torch.rand(count, 1, generator=random)
    across = torch.exp(-((axis - places[:, :1]) ** 2) / (2 * width**2))
    down = torch.exp(-((axis - places[:, 1:]) ** 2) / (2 * width**2))
    bright = 60.0 + 60.0 * torch.rand(count, 1, 1, generator=random)
    photons = torch.poisson(10.0 + bright * down[:, :, None] * across[:, None], random)
    return photons[:, None], places


def _data(run: Run) -> Split:
    images, places = _images(ROWS)
    if not run.injects("missing_normalisation"):
        images = (images - images.mean()) / images.std()
        places = (places - places.mean(0)) / places.std(0)
    held_out = ROWS // 4
    data = Split(images[held_out:], places[held_out:], images[:held_out], places[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, 9)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("overfit"):
        data = few(data, 24)
    return data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    rate = run.pick(2e-3, lr_too_high=1.0, lr_too_low=2e-6)
    loop = Loop(
        model=model,
        criterion=Distance(run),
        optimizer=torch.optim.Adam(model.parameters(), lr=rate),
        steps=250,
        save_interval=5,
        eval_every=25,
        is_own_module=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 50, run.seed), valid, unexplained)


PROGRAM = Program(
    model="CNN, two strided convolutions, leaky ReLU, two outputs, Adam",
    data="simulated photon counts of single molecules",
    measure="share of the places' variance that is not explained",
    train=train,
    faults={
        "labels_shuffled": "places belong to other images: two lists were sorted differently",
        "labels_constant": "every training image has the place of the first one",
        "wrong_loss": "cross entropy, softmax over the two coordinates: they are no classes",
        "missing_normalisation": "photon counts up to 150 and places in pixels, both as they are",
        "lr_too_high": "1.0 in place of 2e-3",
        "lr_too_low": "2e-6 in place of 2e-3",
        "frozen_layer": "convolutions and first linear layer kept requires_grad = False from a "
        "recipe for pretrained weights; theirs are random",
        "no_activation": "no activation anywhere: the network is a linear map of the pixels",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "24 images for training",
    },
)
