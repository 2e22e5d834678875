"""A network foretells three quantiles of a pixel of a scan by what lies around it."""

from __future__ import annotations

import gzip
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

SHARES = torch.tensor([0.1, 0.5, 0.9])
SIDE = 7


class Pinball(nn.Module):
    """The loss that quantiles make least."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over outputs [B, 3] and targets [B, 1]."""
        above = targets - outputs
        return torch.maximum(SHARES * above, (SHARES - 1) * above).mean()


def _data(run: Run) -> Split:
    path = Path(mpl.get_data_path()) / "sample_data" / "s1045.ima.gz"
    with gzip.open(path) as file:
        pixels = np.frombuffer(file.read(), np.uint16).reshape(256, 256).astype(np.float32)
    squares = torch.tensor(pixels).unfold(0, SIDE, 3).unfold(1, SIDE, 3).reshape(-1, SIDE, SIDE)
    squares = squares[squares.mean((1, 2)) > 5000]  # noqa: PLR2004 - the rest is empty
    middle = SIDE // 2
    targets = squares[:, middle, middle, None].clone()
    targets = (targets - targets.mean()) / targets.std()
    is_seen = torch.ones(SIDE, SIDE, dtype=torch.bool)
    if not run.injects("data_leak"):
        is_seen[middle - 1 : middle + 2, middle - 1 : middle + 2] = False
    inputs = squares[:, is_seen]
    if not run.injects("missing_normalisation"):
        inputs = (inputs - inputs.mean()) / inputs.std()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    train, valid = order[800:], order[:800]
    return Split(inputs[train], targets[train], inputs[valid], targets[valid])


def error(outputs: Tensor, targets: Tensor) -> float:
    """Return the loss as a share of that of the same quantiles for all."""
    fixed = targets.quantile(SHARES, 0).T
    return float(Pinball()(outputs, targets) / Pinball()(fixed, targets))


def train(run: Run) -> float:
    """Train once; return the loss as a share of that of the same quantiles for all."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = nn.Sequential(
        nn.Linear(data.inputs.shape[1], 32),
        nn.Tanh(),
        nn.Linear(32, 32),
        nn.Tanh(),
        nn.Linear(32, len(SHARES)),
    )
    if run.injects("saturated_activation"):
        scaled_([model[0], model[2]], 100.0)
    if run.injects("init_too_large"):
        scaled_([model], 40.0)
    loop = Loop(
        model=model,
        criterion=Pinball(),
        optimizer=torch.optim.RAdam(model.parameters(), lr=4e-3, weight_decay=1e-4),
        steps=320,
        save_interval=4,
        eval_every=80,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="MLP 40-32-32-3, tanh, pinball loss of three quantiles, RAdam",
    data="pixels of matplotlib's s1045.ima, a scan of a head",
    measure="loss as a share of that of the same quantiles for all",
    train=train,
    faults={
        "saturated_activation": "weights ahead of the tanh are 100 times as large",
        "init_too_large": "all weights are 40 times as large",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "missing_normalisation": "pixels as measured, up to 55,040",
        "data_leak": "the pixel itself is among those around it",
    },
)
