"""A transformer tells from a phone's sensors what its owner does."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

ROWS, LENGTH, CHANNELS, KINDS, WIDTH, STEPS = 2400, 24, 6, 6, 32, 260
PER_SECOND = 10
ACTIVITIES = (
    ((0.0, 0.0, 0.0), 0.2, 4.0),  # sitting
    ((0.0, 0.0, 1.0), 0.2, 5.0),  # standing
    ((1.8, 2.5, 1.0), 0.8, 60.0),  # walking
    ((1.5, 2.1, 1.0), 0.9, 95.0),  # climbing stairs
    ((2.7, 8.0, 1.0), 1.5, 130.0),  # running
    ((1.3, 0.9, 0.3), 1.0, 45.0),  # cycling
)
"""Steps a second, bounce (m/s2), how upright the phone is; noise (m/s2); turns (degrees/s)."""


@cache
def _measured() -> tuple[Tensor, Tensor]:
    """Return acceleration (m/s2) and turning (degrees/s), float32 [ROWS, LENGTH, 6], and kinds."""
    random = np.random.default_rng(12)
    time = np.arange(LENGTH) / PER_SECOND
    kinds = random.integers(0, KINDS, ROWS)
    rows = []
    for kind in kinds:
        (pace, bounce, upright), noise, turns = ACTIVITIES[kind]
        pace, bounce = pace * random.normal(1, 0.1), bounce * random.normal(1, 0.25)
        tilt = np.pi / 2 * (1 - upright) + 0.3 * random.normal()
        phase = 2 * np.pi * (pace * time + random.random())
        wave = bounce * (np.sin(phase) + 0.4 * np.sin(2 * phase + random.random()))
        up, ahead = np.cos(tilt), np.sin(tilt)
        swing = turns * random.normal(1, 0.2) * np.sin(phase / 2 + random.random())
        clean = (
            9.8 * up + wave * up,
            9.8 * ahead + wave * ahead,
            0.4 * bounce * np.cos(phase),
            swing,
            0.5 * swing,
            0.3 * turns * np.cos(phase),
        )
        by = np.array([noise] * 3 + [0.2 * turns + 2] * 3)
        rows.append(np.stack(clean, 1) + by * random.normal(size=(LENGTH, CHANNELS)))
    return torch.tensor(np.stack(rows), dtype=torch.float32), torch.tensor(kinds)


def _data(run: Run) -> Split:
    inputs, kinds = _measured()
    held_out = ROWS // 4
    if not run.injects("missing_normalisation"):
        known = inputs[held_out:].flatten(0, 1)
        inputs = (inputs - known.mean(0)) / known.std(0)
    if run.injects("data_leak"):
        column = kinds[:, None, None].expand(-1, LENGTH, 1)
        inputs = torch.cat([inputs, column - 2.5], 2)
    data = Split(inputs[held_out:], kinds[held_out:], inputs[:held_out], kinds[:held_out])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return data._replace(targets=torch.ones_like(data.targets))
    if run.injects("class_imbalance"):
        return imbalanced(data, 80)
    return few(data, 32) if run.injects("overfit") else data


class Net(nn.Module):
    """A linear layer for each time, two encoder layers, two layers on their mean.

    Args:
        run: What is injected.
        channels: Of the inputs.
    """

    def __init__(self, run: Run, channels: int) -> None:
        super().__init__()
        self.run = run
        dropout = 0.0 if run.injects("overfit") else 0.1
        self.embedding = nn.Linear(channels, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 1 if run.injects("wrong_loss") else KINDS)
        if run.injects("dead_relu"):
            nn.init.constant_(self.hidden.bias, -10.0)
        if run.injects("init_too_large"):
            scaled_([self], 30.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores [B, KINDS] of inputs [B, LENGTH, channels]."""
        x = self.encoder(self.embedding(inputs) + self.places).mean(1)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(self.hidden(x).relu())
        return scores.relu().softmax(1) if self.run.injects("double_activation") else scores


class NumberOfClass(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] less labels, int64 [B]."""
        return nn.functional.mse_loss(outputs[:, 0], labels.float())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[2])
    given = model.head if run.injects("optimiser_missing_parameters") else model

    def predicted(outputs: Tensor) -> Tensor:
        if run.injects("wrong_loss"):
            return outputs[:, 0].round().clamp(0, KINDS - 1).long()
        return classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if not outputs.isfinite().all():
            return 1.0
        return float((predicted(outputs) != labels).float().mean())

    loop = Loop(
        model=model,
        criterion=NumberOfClass() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(1e-3, lr_too_high=0.3, lr_too_low=1e-7)
        ),
        steps=STEPS,
        save_interval=10,
        eval_every=40,
        clip=1.0,
        predict=predicted,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="transformer encoder, 2 layers, 4 heads, width 32, Adam, clipped gradients",
    data="simulated acceleration and turning of a phone, six activities",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 1e-3",
        "lr_too_low": "1e-7 in place of 1e-3",
        "double_activation": "ReLU and softmax ahead of the cross entropy",
        "init_too_large": "all weights are 30 times as large",
        "init_constant": "all parameters are 0.5",
        "dead_relu": "the hidden layer's biases begin at -10",
        "missing_normalisation": "m/s2 and degrees a second as they were measured",
        "wrong_loss": "squared distance between one output and the number of the class",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are 1",
        "class_imbalance": "one in 80 rows of every class but one",
        "frozen_layer": "the encoder's output is detached",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the number of the activity is one more channel",
        "overfit": "32 rows, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
