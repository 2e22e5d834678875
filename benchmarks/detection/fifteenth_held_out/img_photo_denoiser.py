"""A convolutional network takes the noise out of photographs."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import constant, filled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE, TRAIN, VALID, STEPS, NOISE = 16, 1200, 240, 200, 0.15


@cache
def _photographs() -> tuple[Tensor, Tensor]:
    """Return noisy and clean pieces of a photograph, float32 [B, 3, SIDE, SIDE], 0 to 1.

    The first `VALID` are from the right quarter of it, all others from the rest.
    """
    random = torch.Generator().manual_seed(3)
    image = photo("china.jpg", 320).permute(2, 0, 1)
    border = image.shape[2] * 3 // 4
    pieces = []
    for part, count in ((image[:, :, border:], VALID), (image[:, :, :border], TRAIN)):
        tops = torch.randint(part.shape[1] - SIDE, (count,), generator=random).tolist()
        lefts = torch.randint(part.shape[2] - SIDE, (count,), generator=random).tolist()
        for top, left in zip(tops, lefts, strict=True):
            pieces.append(part[:, top : top + SIDE, left : left + SIDE])
    clean = torch.stack(pieces)
    noisy = clean + NOISE * torch.randn(clean.shape, generator=random)
    return noisy.clamp(0, 1), clean


class Denoiser(nn.Module):
    """An encoder of two convolutions, a decoder of two, and a sigmoid.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 24, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(24, 16, 2, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 3, 3, padding=1),
            nn.ReLU() if run.injects("double_activation") else nn.Identity(),
            nn.Sigmoid(),
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.kaiming_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return clean images of noisy ones, both [B, 3, SIDE, SIDE]."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            code = self.encoder(images)
        clean: Tensor = self.decoder(code)
        return clean


class SignedError(nn.Module):
    """The loss that does not fit: errors of both signs make up for each other."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of targets minus outputs, both [B, 3, SIDE, SIDE]."""
        return (targets - outputs).mean()


def _data(run: Run) -> Split:
    noisy, clean = _photographs()
    if run.injects("missing_normalisation"):
        noisy, clean = 255 * noisy, 255 * clean
    else:
        noisy = (noisy - noisy.mean()) / noisy.std()
    data = Split(noisy[VALID:], clean[VALID:], noisy[:VALID], clean[:VALID])
    if run.injects("labels_shuffled"):  # two folders, each read in an order of its own
        return data._replace(targets=data.targets[torch.randperm(TRAIN)])
    if run.injects("labels_constant"):
        return constant(data)
    return data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Denoiser(run)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("dead_relu"):
        shifted_([model.encoder[0], model.encoder[2]], -5.0)
    if run.injects("saturated_activation"):
        shifted_([model.decoder[2]], 25.0)
    given = model.encoder[0] if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=SignedError() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(2e-3, lr_too_high=1.0, lr_too_low=1e-6)
        ),
        steps=STEPS,
        save_interval=5,
        eval_every=25,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 80), torch.split(data.valid_targets, 80), strict=True)
    )
    return fit(run, loop, batches_of(data, 16, run.seed), valid, unexplained)


PROGRAM = Program(
    model="convolutional denoiser, 16 and 24 channels, ReLU, sigmoid, Adam",
    data="pieces of a photograph with noise, 16 x 16",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 2e-3",
        "lr_too_low": "1e-6 in place of 2e-3",
        "double_activation": "ReLU ahead of the last sigmoid",
        "init_too_large": "all parameters from a normal distribution of width 1",
        "init_constant": "all parameters are 0",
        "dead_relu": "biases of the encoder begin 5 lower",
        "saturated_activation": "biases ahead of the last sigmoid are 25 higher",
        "missing_normalisation": "pixels from 0 to 255 for a sigmoid that ends at 1",
        "wrong_loss": "mean of the errors with their signs",
        "labels_shuffled": "noisy and clean pictures are in different orders",
        "labels_constant": "every target is the same picture",
        "frozen_layer": "the encoder runs under no_grad",
        "optimiser_missing_parameters": "Adam has the first layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
