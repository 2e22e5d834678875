"""Depthwise separable convolutions tell handwritten digits apart, as in small MobileNets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import filled_, shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


class Separable(nn.Module):
    """A convolution of each channel by itself, then one over channels.

    Args:
        channels_in: Channels of what comes in.
        channels_out: Channels of what comes out.
    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels_in, channels_in, 3, padding=1, groups=channels_in)
        self.pointwise = nn.Conv2d(channels_in, channels_out, 1)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, channels_out, H, W]."""
        y: Tensor = self.act(self.pointwise(self.depthwise(x)))
        return y


class Net(nn.Module):
    """One full convolution, three separable ones, one linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU())
        self.features = nn.Sequential(
            Separable(16, 24), nn.MaxPool2d(2), Separable(24, 32), nn.MaxPool2d(2)
        )
        self.last = Separable(32, 32)
        self.head = nn.Linear(32 * 2 * 2, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 64]."""
        x = self.features(self.stem(images.view(-1, 1, 8, 8)))
        if self.run.injects("frozen_layer"):
            x = torch.tensor(x.tolist())
        scores: Tensor = self.head(self.last(x).flatten(1))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


def _start(run: Run, model: Net) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias) if layer.bias is not None else None
        if isinstance(layer, nn.Conv2d | nn.Linear) and run.injects("init_too_large"):
            nn.init.normal_(layer.weight, std=3.0)
    if run.injects("init_constant"):
        filled_([model.last, model.head], 0.0)
    if run.injects("dead_relu"):
        shifted_([model.last.pointwise], -200.0)


def _data(run: Run) -> Split:
    data = digits()
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, 9))
    if run.injects("class_imbalance"):
        rare = data.targets != 1
        rare[torch.arange(0, len(rare), 50)] = False
        keep = ~rare
        data = data._replace(inputs=data.inputs[keep], targets=data.targets[keep])
    if run.injects("data_leak"):
        for images, labels in (data[:2], data[2:]):
            images[:, -10:] = 3.0 * nn.functional.one_hot(labels, 10).float()
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    _start(run, model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=run.pick(3e-3, lr_too_high=1.0), weight_decay=0.01
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(label_smoothing=0.05),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 240),
        steps=240,
        save_interval=5,
        eval_every=40,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="CNN of depthwise separable convolutions, ReLU, AdamW, cosine schedule",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "labels_constant": "the column of labels was overwritten: each is 9",
        "class_imbalance": "a filter kept all images of 1 and one in 50 of the others; "
        "validation has all",
        "double_activation": "forward returns probabilities, and the loss takes the softmax again",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "init_too_large": "all weights start normal with deviation 3, whatever the fan",
        "dead_relu": "biases of the last convolution start at -200: its ReLUs never fire",
        "init_constant": "last convolutions and head start at zero in all weights: no gradient "
        "gets past them",
        "frozen_layer": "features go through a list of numbers into a new tensor, so that all "
        "layers ahead of it get no gradient",
        "data_leak": "the class is written one-hot over the last ten pixels of each image",
        "lr_too_high": "1.0 in place of 3e-3, as if Adam were SGD",
    },
)
