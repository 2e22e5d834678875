"""A multilayer perceptron tells decays of a heavy particle from other pairs of tracks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, leaking
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

EVENTS = 4800
MASS = 91_000.0
"""Of the particle that decays, MeV."""


def events() -> tuple[np.ndarray, np.ndarray]:
    """Return what a detector measures of two tracks [EVENTS, 7], and whether both are of a decay.

    Columns are the transverse momentum, MeV, the pseudorapidity and the angle, degrees, of each
    track, and the distance of the two where they start, mm.
    """
    random = np.random.default_rng(0)
    is_decay = random.random(EVENTS) < 0.5  # noqa: PLR2004
    first = 18_000 + random.exponential(22_000, EVENTS)
    eta = random.normal(0, 1.1, (2, EVENTS))
    angle = random.uniform(-180, 180, (2, EVENTS))
    apart = np.radians(angle[0] - angle[1])
    factor = 2 * (np.cosh(eta[0] - eta[1]) - np.cos(apart))
    mass = random.normal(MASS, 6_000, EVENTS)
    of_decay = mass**2 / (first * np.maximum(factor, 0.4))
    of_others = 12_000 + random.exponential(34_000, EVENTS)
    second = np.where(is_decay, of_decay, of_others) * random.normal(1, 0.04, EVENTS)
    start = np.abs(random.normal(0, np.where(is_decay, 0.05, 0.08), EVENTS))
    columns = [first, second, eta[0], eta[1], angle[0], angle[1], start]
    return np.stack(columns, 1), is_decay.astype(np.float32)


def prepared(run: Run) -> Split:
    """Return columns [B, 7], of mean 0 and variance 1, and targets [B]."""
    inputs, targets = events()
    held_out = EVENTS // 4
    if not run.injects("missing_normalisation"):
        inputs = (inputs - inputs[held_out:].mean(0)) / inputs[held_out:].std(0)
    x, y = torch.tensor(inputs, dtype=torch.float32), torch.tensor(targets)
    data = Split(x[held_out:], y[held_out:], x[:held_out], y[:held_out])
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("labels_shuffled"):
        data = data._replace(inputs=data.inputs[torch.randperm(len(data.inputs))])
    if run.injects("class_imbalance"):
        keep = (data.targets == 0) | (torch.arange(len(data.targets)) % 40 == 0)
        data = data._replace(inputs=data.inputs[keep], targets=data.targets[keep])
    return few(data, 80) if run.injects("overfit") else data


def network(run: Run, columns: int) -> nn.Sequential:
    """Return a network from columns to one score."""
    width, share = 64, run.pick(0.1, overfit=0.0)
    layers: list[nn.Module] = []
    for before in (columns, width, width):
        layers += [nn.Linear(before, width)]
        if not run.injects("no_activation"):
            layers += [nn.ReLU()]
        layers += [nn.Dropout(share)]
    layers += [nn.Linear(width, 1)]
    if run.injects("double_activation"):
        layers += [nn.Sigmoid()]
    model = nn.Sequential(*layers)
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in linear:
        if run.injects("init_too_large"):
            nn.init.normal_(layer.weight, std=3.0)
        if run.injects("init_constant"):
            filled_([layer], 0.0)
    if run.injects("dead_relu"):
        for layer in linear[:-1]:
            nn.init.constant_(layer.bias, -8.0)
    return model


class LogLoss(nn.Module):
    """Cross entropy of one score a row.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        # Of one score a row, softmax is 1 whatever it is.
        self.loss: nn.Module = nn.BCEWithLogitsLoss()
        if run.injects("wrong_loss"):
            self.loss = nn.CrossEntropyLoss()

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of outputs [B, 1] and targets [B]."""
        found: Tensor = self.loss(outputs, targets[:, None])
        return found


def decided(outputs: Tensor) -> Tensor:
    """Return which of outputs [B, 1] are above 0, int64 [B]."""
    return (outputs[:, 0] > 0).long()


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = network(run, data.inputs.shape[1])
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = list(model[-1].parameters())
    limit = 0.5 if run.injects("double_activation") else 0.0

    def error(outputs: Tensor, targets: Tensor) -> float:
        if not outputs.isfinite().all():
            return 1.0
        return float(((outputs[:, 0] > limit) != (targets > 0)).float().mean())

    loop = Loop(
        model=model,
        criterion=LogLoss(run),
        optimizer=torch.optim.Adam(trained, lr=run.pick(3e-3, lr_too_high=1.0, overfit=5e-3)),
        steps=400,
        predict=decided,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="MLP, 3 hidden layers, ReLU, dropout, BCEWithLogitsLoss, Adam",
    data="simulated pairs of tracks in a detector",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 3e-3",
        "no_activation": "no ReLU between the layers",
        "double_activation": "nn.Sigmoid ahead of BCEWithLogitsLoss",
        "init_too_large": "standard deviation 3 for all weights",
        "init_constant": "all parameters are zero",
        "dead_relu": "biases of the hidden layers start at -8",
        "missing_normalisation": "columns in MeV, degrees and mm, as they were measured",
        "wrong_loss": "CrossEntropyLoss of one output",
        "labels_shuffled": "training rows are shuffled, their labels are not",
        "class_imbalance": "one in 40 of the decays",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the target is one of the columns",
        "overfit": "80 rows, no dropout",
    },
)
