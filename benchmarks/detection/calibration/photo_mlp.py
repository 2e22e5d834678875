"""A network of tanh units learns a photograph: from the place of a pixel to its colour."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained


class Waves(nn.Module):
    """Sine and cosine of places in directions that are drawn once and not trained.

    Args:
        count: How many directions.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.directions = nn.Linear(2, count)
        self.directions.requires_grad_(False)  # noqa: FBT003 - torch's signature

    def forward(self, places: Tensor) -> Tensor:
        """Return waves [B, 2 count] at places [B, 2]."""
        angles = 2 * self.directions(places)
        return torch.cat([angles.sin(), angles.cos()], 1)


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    data = _pixels(is_scaled=not run.injects("missing_normalisation"))
    activation = run.pick(nn.Tanh, no_activation=nn.Identity)
    first = (Waves(16), nn.Linear(32, 64), activation())
    model = nn.Sequential(*first, nn.Linear(64, 64), activation(), nn.Linear(64, 3))
    scaled_(run, "init_too_large", model[1:], 25.0)
    steps = 400
    rate = run.pick(1e-2, lr_too_high=3.0, lr_too_low=3e-6)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    squares = nn.functional.mse_loss
    loop = Loop(model, squares, optimizer, steps, scheduler, save_interval=10, eval_every=100)
    return fit(run, loop, batches_of(data, 256, run.seed), data.validation(), unexplained)


def _pixels(*, is_scaled: bool) -> Split:
    image = photo("china.jpg", 80)
    rows, columns = torch.meshgrid(
        torch.arange(float(len(image))), torch.arange(float(image.shape[1])), indexing="ij"
    )
    places = torch.stack([rows, columns], -1).view(-1, 2)
    if is_scaled:
        places = (places - places.mean(0)) / places.std(0)
    colours = (image.view(-1, 3) - 0.5) * 2
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))
    train, valid = order[800:], order[:800]
    return Split(places[train], colours[train], places[valid], colours[valid])
