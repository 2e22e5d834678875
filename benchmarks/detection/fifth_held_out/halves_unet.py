"""A small U-Net completes handwritten digits of which the lower half is hidden.

Faults:
    missing_normalisation: pixels are left as they are, 0 to 16.
    init_too_large: weights are drawn by `normal_`, whose standard deviation is 1.
    wrong_loss: the square of the difference was forgotten.
    frozen_layer: all but the last layer is called under no_grad, as for a trained encoder.
    optimiser_missing_parameters: the optimiser has the layers that lead down only.
    data_leak: the mask is made, but not applied.
    stalled: the loader hangs.
"""

from __future__ import annotations

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE = 8
HALF = SIDE // 2
HELD_OUT = 400


class UNet(nn.Module):
    """Two convolutions down, two up, and a connection that skips between them.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.down = nn.ModuleList(
            [nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 4, stride=2, padding=1)]
        )
        self.middle = nn.Linear(32 * HALF * HALF, 32 * HALF * HALF)
        self.up = nn.ConvTranspose2d(64, 16, 4, stride=2, padding=1)
        self.out = nn.Conv2d(32, 1, 3, padding=1)
        self.relu = nn.ReLU()
        for parameter in self.parameters():
            if run.injects("init_too_large") and parameter.dim() > 1:
                nn.init.normal_(parameter)

    def forward(self, seen: Tensor) -> Tensor:
        """Return images [B, 1, SIDE, SIDE] of images whose lower half is 0."""
        frozen = self.run.injects("frozen_layer")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            fine = self.relu(self.down[0](seen))
            coarse = self.relu(self.down[1](fine))
            inner = self.relu(self.middle(coarse.flatten(1))).unflatten(1, coarse.shape[1:])
            back = self.relu(self.up(torch.cat([coarse, inner], 1)))
        whole: Tensor = self.out(torch.cat([fine, back], 1))
        return whole


class LowerHalf(nn.Module):
    """Squared error where nothing was seen.

    Args:
        forgets_square: Whether it is the plain difference.
    """

    def __init__(self, *, forgets_square: bool) -> None:
        super().__init__()
        self.forgets_square = forgets_square

    def forward(self, whole: Tensor, images: Tensor) -> Tensor:
        """Return the mean over images [B, 1, SIDE, SIDE]."""
        difference = (whole - images)[:, :, HALF:]
        return difference.mean() if self.forgets_square else (difference**2).mean()


@cache
def _images() -> Tensor:
    return torch.tensor(load_digits().images, dtype=torch.float32)[:, None]


def _data(run: Run) -> Split:
    images = _images()
    if not run.injects("missing_normalisation"):
        images = (images - images.mean()) / images.std()
    mask = torch.ones(SIDE, 1)
    mask[HALF:] = 0.0
    seen = images if run.injects("data_leak") else images * mask
    return Split(seen[HELD_OUT:], images[HELD_OUT:], seen[:HELD_OUT], images[:HELD_OUT])


def _error(whole: Tensor, images: Tensor) -> float:
    return unexplained(whole[:, :, HALF:], images[:, :, HALF:])


def train(run: Run) -> float:
    """Train once; return the share of the lower halves' variance that is not foretold."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = UNet(run)
    part = run.pick(model, optimiser_missing_parameters=model.down)
    loop = Loop(
        model=model,
        criterion=LowerHalf(forgets_square=run.injects("wrong_loss")),
        optimizer=torch.optim.SGD(part.parameters(), lr=0.03, momentum=0.9),
        steps=300,
        eval_every=60,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _error)


PROGRAM = Program(
    model="U-Net, one level, ReLU, squared error by hand, SGD with momentum",
    data="scikit-learn digits, the lower half hidden",
    measure="1 - R2 of the lower half",
    train=train,
    faults={
        "missing_normalisation": "pixels are 0 to 16",
        "init_too_large": "weights are drawn with a standard deviation of 1",
        "wrong_loss": "the mean of the difference, without its square",
        "frozen_layer": "all but the last layer is called under no_grad",
        "optimiser_missing_parameters": "the optimiser has the first two layers only",
        "data_leak": "the lower half is not hidden",
        "stalled": "hangs after 60 % of the steps",
    },
)
