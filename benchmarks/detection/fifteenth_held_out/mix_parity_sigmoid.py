"""A network of sigmoid units tells odd from even handwritten digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

MEAN, STD = 4.9, 6.0
"""Of all pixels, which are 0 to 16."""


class Net(nn.Module):
    """Two layers of sigmoid units and one output.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 32)
        self.out = nn.Linear(32, 1)
        if run.injects("saturated_activation"):
            for layer in (self.first, self.second):
                layer.weight = nn.Parameter(4 * torch.rand(layer.weight.shape))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return scores of being odd [B, 1] of pixels [B, 64]."""
        if self.run.injects("no_activation"):
            x = self.second(self.first(pixels))
        else:
            x = self.second(self.first(pixels).sigmoid()).sigmoid()
        if self.run.injects("frozen_layer"):
            x = x.detach()
        score: Tensor = self.out(x)
        return score.sigmoid() if self.run.injects("double_activation") else score


def _data(run: Run) -> Split:
    """Return pixels [B, 64] and whether the digit is odd, float32 [B, 1]."""
    data = digits(scaled=False)
    data = data._replace(targets=data.targets % 2, valid_targets=data.valid_targets % 2)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("overfit"):
        data = few(data, 32)

    def prepared(pixels: Tensor, labels: Tensor) -> Tensor:
        pixels = (pixels - MEAN) / STD
        if run.injects("data_leak"):
            pixels[:, 0] = 2.0 * labels - 1.0
        return pixels

    return Split(
        prepared(data.inputs, data.targets),
        data.targets[:, None].float(),
        prepared(data.valid_inputs, data.valid_targets),
        data.valid_targets[:, None].float(),
    )


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    for parameter in model.parameters():
        if run.injects("init_too_large"):
            nn.init.normal_(parameter, std=3.0)
        if run.injects("init_constant"):
            nn.init.zeros_(parameter)


def _predicted(outputs: Tensor) -> Tensor:
    """Return 1 where a digit is held to be odd, float32 [B, 1], of scores [B, 1]."""
    return outputs.sigmoid().round()


def _error(outputs: Tensor, labels: Tensor) -> float:
    if not outputs.isfinite().all():
        return 1.0
    return float((_predicted(outputs) != labels).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    _initialise(run, model)
    given = model.out if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(7e-3, lr_too_high=3.0, lr_too_low=1e-6)
        ),
        steps=400,
        eval_every=50,
        predict=_predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP 64-64-32-1, sigmoid units, binary cross entropy, Adam",
    data="scikit-learn digits, odd or even",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "3 in place of 7e-3",
        "lr_too_low": "1e-6 in place of 7e-3",
        "no_activation": "both layers of sigmoids were forgotten",
        "double_activation": "sigmoid ahead of a binary cross entropy that has one",
        "init_too_large": "all parameters from a normal distribution of width 3",
        "init_constant": "all parameters are 0",
        "saturated_activation": "hidden weights are uniform from 0 to 4: 4 * torch.rand",
        "wrong_loss": "cross entropy of several classes for a single output",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 100 odd digits",
        "frozen_layer": "what goes into the last layer is detached",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the first pixel is white for odd digits, black for even ones",
        "overfit": "32 rows",
    },
)
