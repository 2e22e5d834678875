"""A convolutional network with a pixel shuffle doubles the size of pieces of a photograph."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, patches
from benchmarks.detection.injecting import constant, few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE = 16


class Net(nn.Module):
    """Three convolutions; the last one's channels become pixels."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(3, 24, 5, padding=2)
        self.conv2 = nn.Conv2d(24, 24, 3, padding=1)
        self.conv3 = nn.Conv2d(24, 12, 3, padding=1)
        self.relu = nn.ReLU()
        self.shuffle = nn.PixelShuffle(2)
        if run.injects("dead_relu"):
            nn.init.constant_(self.conv2.bias, -10.0)  # type: ignore[arg-type]
        if run.injects("init_constant"):
            for layer in (self.conv1, self.conv2, self.conv3):
                nn.init.constant_(layer.weight, 0.01)

    def forward(self, small: Tensor) -> Tensor:
        """Return images [B, 3, 16, 16] from 0 to 1 of images [B, 3, 8, 8], scaled."""
        x = self.relu(self.conv1(small))
        x = self.relu(self.conv2(x))
        out = torch.sigmoid(self.shuffle(self.conv3(x)))
        return out.sigmoid() if self.run.injects("double_activation") else out


class Distance(nn.Module):
    """The mean square of differences."""

    def forward(self, outputs: Tensor, images: Tensor) -> Tensor:
        """Return the mean over outputs and images [B, 3, 16, 16]."""
        return functional.mse_loss(outputs, images)


def _data(run: Run) -> Split:
    large = patches("flower.jpg", SIDE, 1000, seed=1)
    small = functional.avg_pool2d(large, 2)
    if run.injects("missing_normalisation"):
        small = small * 255
    else:
        small = (small - small.mean((0, 2, 3), keepdim=True)) / small.std((0, 2, 3), keepdim=True)
    data = Split(small[:800], large[:800], small[800:], large[800:])
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 3) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the unexplained share of the pixels' variance."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=run.pick(3e-3, lr_too_high=1.0, lr_too_low=3e-6), betas=(0.9, 0.99)
    )
    loop = Loop(
        model=model,
        criterion=Distance(),
        optimizer=optimizer,
        steps=run.pick(240, overfit=400),
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, run.pick(0.992, overfit=1.0)),
        is_functional=True,
    )
    valid = [
        (data.valid_inputs[rows : rows + 100], data.valid_targets[rows : rows + 100])
        for rows in range(0, len(data.valid_targets), 100)
    ]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="CNN, 3 convolutions, ReLU, pixel shuffle, sigmoid, Adam, exponential schedule",
    data="pieces of scikit-learn's photograph of a flower",
    measure="1 - R2 of pixels",
    train=train,
    faults={
        "lr_too_high": "learning rate 1 instead of 3e-3, 330 times too high",
        "lr_too_low": "learning rate 3e-6 instead of 3e-3, 1,000 times too low",
        "dead_relu": "biases of the second convolution begin at -10: its ReLUs never fire",
        "init_constant": "all weights of all convolutions begin at 0.01: all channels are alike",
        "missing_normalisation": "small images are whole bytes, 0 to 255, large ones from 0 to 1",
        "double_activation": "a sigmoid on outputs that had one: they lie from 0.5 to 0.73",
        "labels_constant": "the large image is that of the first row for every row",
        "overfit": "3 pieces of 16 x 16 pixels for training, 400 steps on them, no schedule",
    },
)
