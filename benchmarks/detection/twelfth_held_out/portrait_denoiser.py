"""A convolutional autoencoder takes noise off pieces of a portrait."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIZE = 16
COUNT = 1000
NOISE = 0.15
BRIGHTEST = 255.0


class Autoencoder(nn.Module):
    """Two convolutions with strides, two transposed ones.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        units = run.pick(nn.ReLU, saturated_activation=nn.Sigmoid)
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1),
            units(),
            nn.Conv2d(12, 16, 3, stride=2, padding=1),
            units(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 12, 2, stride=2),
            units(),
            nn.ConvTranspose2d(12, 1, 2, stride=2),
            nn.Sigmoid(),
        )
        if run.injects("double_activation"):
            self.decoder.append(nn.Sigmoid())
        if run.injects("init_too_large"):
            scaled_([self], 15.0)
        if run.injects("dead_relu"):
            shifted_([self.encoder[2]], -10.0)
        if run.injects("saturated_activation"):
            shifted_([self.encoder[0], self.encoder[2]], 10.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return clean images [B, 1, 16, 16] of noisy ones [B, 1, 16, 16]."""
        maps = self.encoder(images)
        if self.run.injects("frozen_layer"):
            maps = maps.detach()
        clean: Tensor = self.decoder(maps)
        return clean


def dataset(run: Run) -> Split:
    """Return pieces with noise and without it, both [B, 1, 16, 16]; a quarter is for validation."""
    path = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    grey = np.asarray(Image.open(path).convert("L"), dtype=np.float32)[::3, ::3]
    image = torch.tensor(grey / BRIGHTEST)
    random = torch.Generator().manual_seed(4)
    tops = torch.randint(image.shape[0] - SIZE, (COUNT,), generator=random).tolist()
    lefts = torch.randint(image.shape[1] - SIZE, (COUNT,), generator=random).tolist()
    clean = torch.stack(
        [image[t : t + SIZE, x : x + SIZE] for t, x in zip(tops, lefts, strict=True)]
    )[:, None]
    noisy = clean + NOISE * torch.randn(clean.shape, generator=random)
    if run.injects("missing_normalisation"):
        noisy, clean = noisy * BRIGHTEST, clean * BRIGHTEST
    held_out = COUNT // 4
    data = Split(noisy[held_out:], clean[held_out:], noisy[:held_out], clean[:held_out])
    if run.injects("labels_constant"):
        data = constant(data)
    return shuffled(data, run.seed) if run.injects("labels_shuffled") else data


def train(run: Run) -> float:
    """Train once; return the unexplained share of the variance."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Autoencoder(run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.encoder.parameters())
    else:
        parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=1e-6))
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        steps=400,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400),
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 125), torch.split(data.valid_targets, 125), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="convolutional autoencoder, ReLU, sigmoid at the end, Adam, cosine",
    data="pieces of matplotlib's grace_hopper.jpg, 16 x 16, grey, with noise",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "lr_too_low": "1e-6 in place of 5e-3",
        "missing_normalisation": "pixels from 0 to 255, as inputs and as targets",
        "double_activation": "sigmoid after sigmoid at the end",
        "init_too_large": "all weights are 15 times as large",
        "dead_relu": "biases of the second convolution begin near -10",
        "saturated_activation": "sigmoid in place of ReLU, biases of the encoder near 10",
        "labels_shuffled": "clean and noisy pieces are shuffled apart",
        "labels_constant": "every clean piece is the first one",
        "frozen_layer": "the encoder's maps are detached",
        "optimiser_missing_parameters": "the decoder's parameters are not given to Adam",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
