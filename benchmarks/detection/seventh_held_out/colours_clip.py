"""Two towers bring names of colours and the colours themselves together, as CLIP does."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit

_PIECES: Final = 512
"""Numbers that pieces of names are hashed to; 0 is padding."""
_LONGEST: Final = 32
_BATCH: Final = 128
_FEW: Final = 64


class Towers(nn.Module):
    """One tower for names, one for colours.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        width = run.pick(24, overfit=96)
        self.pieces = nn.Embedding(_PIECES, width, padding_idx=0)
        nn.init.normal_(self.pieces.weight, std=0.3)
        self.name = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, 16))
        self.colour = nn.Sequential(
            nn.Linear(3, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 16)
        )
        self.log_scale = nn.Parameter(torch.tensor(math.log(5.0)))
        if run.injects("init_constant"):
            filled_([self.name, self.colour], 0.05)

    def forward(self, rows: Tensor) -> Tensor:
        """Return how well names fit colours, [B, B], of colours and pieces [B, 3 + pieces]."""
        pieces = rows[:, 3:].long()
        known = (pieces > 0).float().unsqueeze(-1)
        bag = (self.pieces(pieces) * known).sum(1) / known.sum(1).sqrt().clamp(min=1)
        names = nn.functional.normalize(self.name(bag), dim=-1)
        if self.run.injects("frozen_layer"):
            names = names.detach()
        colours = nn.functional.normalize(self.colour(rows[:, :3]), dim=-1)
        alike = names @ colours.T
        if self.run.injects("wrong_loss"):
            return alike
        return alike * self.log_scale.exp()


class BothWays(nn.Module):
    """Cross entropy from names to colours and back, as a function."""

    def forward(self, scores: Tensor, right: Tensor) -> Tensor:
        """Return the mean of both ways, of scores [B, B] and places of the right ones [B]."""
        there = nn.functional.cross_entropy(scores, right)
        return (there + nn.functional.cross_entropy(scores.T, right)) / 2


class Together(nn.Module):
    """The loss that does not fit: it only pulls, and pushes nothing apart."""

    def forward(self, alike: Tensor, right: Tensor) -> Tensor:  # noqa: ARG002
        """Return 1 minus the mean similarity of what belongs together, of cosines [B, B]."""
        return 1 - alike.diagonal().mean()


@cache
def named_colours() -> Split:
    """Return colours (mean 0, variance 1) with pieces of their names, float32 [B, 3 + pieces]."""
    rows = []
    for name, code in mpl.colors.XKCD_COLORS.items():
        text = f" {name.removeprefix('xkcd:')} "
        pieces = [text[at : at + 3] for at in range(len(text) - 2)]
        numbers = [
            1 + sum(ord(letter) * 31**place for place, letter in enumerate(piece)) % (_PIECES - 1)
            for piece in pieces
        ][:_LONGEST]
        rows.append([*mpl.colors.to_rgb(code), *numbers, *[0] * (_LONGEST - len(numbers))])
    table = torch.tensor(rows)[np.random.default_rng(0).permutation(len(rows))]
    held_out = len(table) // 5
    colours = table[held_out:, :3]
    table[:, :3] = (table[:, :3] - colours.mean(0)) / colours.std(0)
    places = torch.arange(len(table))
    return Split(table[held_out:], places[held_out:], table[:held_out], places[:held_out])


def batches(table: Tensor, size: int, seed: int) -> Batches:
    """Yield batches of different pairs, and where in the batch each one's partner is."""
    random = torch.Generator().manual_seed(seed)
    size = min(size, len(table))
    while True:
        order = torch.randperm(len(table), generator=random)
        for start in range(0, len(order) - size + 1, size):
            yield table[order[start : start + size]], torch.arange(size)


def worse(scores: Tensor, right: Tensor) -> float:
    """Return the share of wrong colours that fit a name better than its own does."""
    if not scores.isfinite().all():
        return 1.0
    own = scores.gather(1, right[:, None])
    above = (scores > own).float() + ((scores == own).float() / 2)
    return float((above.sum(1) - 0.5).mean() / (scores.shape[1] - 1))


def train(run: Run) -> float:
    """Train once; return the share of wrong colours ahead of the right one."""
    torch.manual_seed(run.seed)
    data = named_colours()
    if run.injects("overfit"):
        data = few(data, _FEW)
    table = data.inputs.clone()
    if run.injects("labels_shuffled"):
        # Colours are sorted by lightness and lose their names, which are not.
        table[:, :3] = table[table[:, :3].sum(1).argsort(), :3]
    model = Towers(run)
    loop = Loop(
        model=model,
        criterion=Together() if run.injects("wrong_loss") else BothWays(),
        optimizer=torch.optim.AdamW(
            model.parameters(),
            lr=run.pick(2e-3, lr_too_high=1.0),
            weight_decay=run.pick(0.3, overfit=0.0),
        ),
        steps=run.pick(200, overfit=400),
        eval_every=25,
        is_functional=True,
    )
    valid = [
        (data.valid_inputs[at : at + _BATCH], torch.arange(_BATCH))
        for at in range(0, len(data.valid_inputs) - _BATCH + 1, _BATCH)
    ]
    return fit(run, loop, batches(table, _BATCH, run.seed), valid, worse)


PROGRAM = Program(
    model="two towers, embeddings, GELU, learned temperature, AdamW, functional contrastive loss",
    data="matplotlib's 949 colours with the names people gave them",
    measure="share of wrong colours that fit a name better than its own",
    train=train,
    faults={
        "lr_too_high": "AdamW with learning rate 1 where 0.002 is right: 500 times",
        "labels_shuffled": "the colours were sorted by lightness, their names not",
        "frozen_layer": "the names' tower is detached, though nothing trained it before: only the"
        " colours' tower learns",
        "overfit": "64 pairs, four times as wide an embedding, no weight decay, 400 epochs",
        "wrong_loss": "the loss only raises the similarity of pairs that belong together: the best"
        " answer is one vector for everything",
        "init_constant": "all weights and biases of both towers are 0.05: all of an embedding's"
        " numbers are equal and stay so",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
