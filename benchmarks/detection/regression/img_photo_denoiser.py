"""A convolutional network takes the noise out of photographs."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import drawn_, filled_, grad_unless_frozen, shifted_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit

SIDE, TRAIN, VALID, NOISE = 16, 1200, 240, 0.15


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
    """An encoder of two convolutions, a decoder of two, and a sigmoid."""

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
            run.pick(nn.Identity(), double_activation=nn.ReLU()),
            nn.Sigmoid(),
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.kaiming_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return clean images of noisy ones, both [B, 3, SIDE, SIDE]."""
        with grad_unless_frozen(self.run):
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
    data = Split.of(noisy, clean, VALID)
    if run.injects("labels_shuffled"):  # two folders, each read in an order of its own
        return data._replace(targets=data.targets[torch.randperm(TRAIN)])
    return with_fault(run, data)


def train(run: Run) -> float:
    data, model = _data(run), Denoiser(run)
    drawn_(run, "init_too_large", [model], 1.0)
    filled_(run, "init_constant", [model], 0.0)
    shifted_(run, "dead_relu", [model.encoder[0], model.encoder[2]], -5.0)
    shifted_(run, "saturated_activation", [model.decoder[2]], 25.0)
    trained = run.pick(model, optimiser_missing_parameters=model.encoder[0])
    rate = run.pick(2e-3, lr_too_high=1.0, lr_too_low=1e-6)
    criterion = run.pick(nn.MSELoss(), wrong_loss=SignedError())
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    loop = Loop(model, criterion, optimizer, 200, eval_every=25)
    return fit(run, loop, batches_of(data, 16, run.seed), data.validation(80))
