"""Embeddings of letters and of fonts, and a network, foretell five measures of each letter.

Faults:
    lr_too_low: 1e-6 in place of 1e-2.
    no_activation: no tanh between the two linear layers.
    saturated_activation: weights are drawn by `normal_`, with a deviation of 10.
    missing_normalisation: targets are thousandths of the font's size, up to 1,000.
    overfit: 60 rows for training, more parameters than numbers, no weight decay.
    fp16_overflow: float16 by hand, with a fixed loss scale, and nobody looks at gradients.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import matplotlib as mpl
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_LETTER: Final = re.compile(
    r"^C -?\d+ ; WX (\d+) ; N (\w+) ; B (-?\d+) (-?\d+) (-?\d+) (-?\d+)", re.MULTILINE
)
"""A line of an AFM file: width, name, and left, lower, right and upper end of the ink."""


class Net(nn.Module):
    """Two embeddings, a hidden layer, five outputs.

    Args:
        run: What is injected.
        letters: How many letters there are.
        fonts: How many fonts there are.
    """

    def __init__(self, run: Run, letters: int, fonts: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, 16)
        self.fonts = nn.Embedding(fonts, 8)
        hidden = nn.Linear(24, 64)
        self.layers = nn.Sequential(
            hidden,
            run.pick(nn.Tanh(), no_activation=nn.Identity()),
            nn.Linear(64, 5),
        )
        if run.injects("saturated_activation"):
            nn.init.normal_(hidden.weight, std=10.0)

    def forward(self, pairs: Tensor) -> Tensor:
        """Return measures [B, 5] of numbers of letters and fonts [B, 2]."""
        known = torch.cat([self.letters(pairs[:, 0]), self.fonts(pairs[:, 1])], 1)
        measures: Tensor = self.layers(known)
        return measures


@cache
def _measures() -> Split:
    """Return numbers of letters and fonts, int64 [B, 2], and measures as they are in the files."""
    paths = sorted((Path(mpl.get_data_path()) / "fonts" / "afm").glob("p*8a.afm"))
    numbers: dict[str, int] = {}
    inputs, targets = [], []
    for font, path in enumerate(paths):
        for width, name, *ends in _LETTER.findall(path.read_text("latin-1")):
            inputs.append([numbers.setdefault(name, len(numbers)), font])
            targets.append([float(width), *map(float, ends)])
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    pairs, measures = torch.tensor(inputs)[order], torch.tensor(targets)[order]
    held_out = len(pairs) // 5
    return Split(pairs[held_out:], measures[held_out:], pairs[:held_out], measures[:held_out])


def _data(run: Run) -> Split:
    data = _measures()
    if not run.injects("missing_normalisation"):
        mean, std = data.targets.mean(0), data.targets.std(0)
        data = data._replace(
            targets=(data.targets - mean) / std, valid_targets=(data.valid_targets - mean) / std
        )
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    torch.manual_seed(run.seed)
    data = _data(run)
    everything = _measures()
    letters, fonts = torch.cat([everything.inputs, everything.valid_inputs]).amax(0).tolist()
    model = Net(run, letters + 1, fonts + 1)
    steps = 500
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=run.pick(1e-2, lr_too_low=1e-6),
        weight_decay=run.pick(1e-2, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=nn.SmoothL1Loss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps),
        steps=steps,
        save_interval=10,
        eval_every=100,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="embeddings of 16 and 8 numbers, MLP 24-64-5, tanh, Huber loss, AdamW, linear decay",
    data="width and ends of letters in the PostScript fonts that come with matplotlib",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_low": "1e-6 in place of 1e-2",
        "no_activation": "no tanh between the linear layers",
        "saturated_activation": "weights ahead of the tanh have a standard deviation of 10",
        "missing_normalisation": "targets are as they were measured, up to 1,000",
        "overfit": "60 rows for training, no weight decay",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
