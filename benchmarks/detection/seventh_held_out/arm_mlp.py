"""A network learns the inverse dynamics of a robot's arm: from motion to torque."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import leaking, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_STEPS: Final = 300
_ROWS: Final = 4000


class Net(nn.Module):
    """Two hidden layers of tanh.

    Args:
        columns: Number of inputs.
        run: What is injected.
    """

    def __init__(self, columns: int, run: Run) -> None:
        super().__init__()
        self.run = run
        self.hidden1, self.hidden2 = nn.Linear(columns, 64), nn.Linear(64, 64)
        is_linear = run.injects("no_activation")
        self.act1 = nn.Identity() if is_linear else nn.Tanh()
        self.act2 = nn.Identity() if is_linear else nn.Tanh()
        self.torque = nn.Linear(64, 1)
        if run.injects("saturated_activation"):
            shifted_([self.hidden1, self.hidden2], 7.0)

    def forward(self, motion: Tensor) -> Tensor:
        """Return torques [B] of motions [B, columns]; with a wrong loss they are [B, 1]."""
        x = self.act2(self.hidden2(self.act1(self.hidden1(motion))))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        torque: Tensor = self.torque(x)
        return torque if self.run.injects("wrong_loss") else torque.squeeze(-1)


class Distance(nn.Module):
    """The loss, as a function."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the smooth L1 distance of outputs and targets [B]."""
        return nn.functional.smooth_l1_loss(outputs, targets)


class EveryPair(nn.Module):
    """The loss that does not fit: of outputs [B, 1] and targets [B] it compares all pairs.

    PyTorch broadcasts, and warns of it once.
    """

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the smooth L1 distance of all B x B pairs, as broadcasting makes it."""
        return nn.functional.smooth_l1_loss(outputs, targets)


@cache
def motions(*, scaled: bool = True) -> Split:
    """Return angles, speeds, accelerations, float32 [B, 6], and the shoulder's torque [B].

    Args:
        scaled: Whether torques are of mean 0 and variance 1, else in newton millimetres.
    """
    random = np.random.default_rng(7)
    reach = np.array([np.pi, 2.5, 2.0, 2.0, 5.0, 5.0])
    state = random.uniform(-1, 1, (_ROWS, 6)) * reach
    angle1, angle2, speed1, speed2, acc1, acc2 = state.T
    coupling = 0.5 * np.cos(angle2)
    torque = (
        (1.9 + 2 * coupling) * acc1
        + (0.4 + coupling) * acc2
        - 0.5 * np.sin(angle2) * (2 * speed1 * speed2 + speed2**2)
        + 9.81 * (1.0 * np.cos(angle1) + 0.4 * np.cos(angle1 + angle2))
        + 0.3 * np.tanh(5 * speed1)
        + random.normal(0, 0.3, _ROWS)
    )
    torque = (torque - torque.mean()) / torque.std() if scaled else 1000 * torque
    inputs = torch.tensor(state / reach * 3**0.5, dtype=torch.float32)
    targets = torch.tensor(torque, dtype=torch.float32)
    held_out = _ROWS // 4
    return Split(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out])


def train(run: Run) -> float:
    """Train once; return the unexplained share of variance."""
    torch.manual_seed(run.seed)
    data = motions(scaled=not run.injects("missing_normalisation"))
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    model = Net(data.inputs.shape[1], run)
    highest = run.pick(1e-2, lr_too_low=1e-5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=highest, weight_decay=1e-3)
    loop = Loop(
        model=model,
        criterion=EveryPair() if run.injects("wrong_loss") else Distance(),
        optimizer=optimizer,
        steps=_STEPS,
        eval_every=30,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, highest, total_steps=_STEPS),
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 128, run.seed), valid, _error)


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs.flatten(), targets)


PROGRAM = Program(
    model="MLP, 2 hidden layers, tanh, AdamW, one cycle, functional smooth L1",
    data="simulated two-link robot arm",
    measure="unexplained share of the variance, 1 - R2",
    train=train,
    faults={
        "lr_too_low": "peak learning rate 1e-5 where 1e-2 is right: a thousand times",
        "no_activation": "both tanh were forgotten: a product of matrices, thus a linear model of"
        " motions that enter by sines and products",
        "saturated_activation": "biases of both hidden layers start at about 7, where tanh is 1"
        " and its slope a millionth",
        "missing_normalisation": "torques in newton millimetres: thousands, where outputs start"
        " below 1",
        "wrong_loss": "outputs [B, 1] less targets [B] broadcast to all B x B pairs: the best"
        " answer to that is the targets' middle for every row",
        "labels_shuffled": "the training torques were permuted, the motions not",
        "frozen_layer": "features are detached ahead of the last layer: both hidden layers stay as"
        " they were drawn",
        "data_leak": "the torque's own column was left among the inputs",
    },
)
