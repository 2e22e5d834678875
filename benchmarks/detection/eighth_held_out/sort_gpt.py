"""A small GPT learns to sort digits, the demonstration of minGPT."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit

KINDS, LENGTH, WIDTH, HEADS, STEPS = 4, 6, 32, 4, 300
PLACES = 2 * LENGTH - 1


def sequences(count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return digits and their sorted copy but for the last, and what is next, int64 [count, 11].

    What is next is -1 within the digits that are given.
    """
    given = torch.randint(KINDS, (count, LENGTH), generator=random)
    whole = torch.cat([given, given.sort(1).values], 1)
    targets = whole[:, 1:].clone()
    targets[:, : LENGTH - 1] = -1
    return whole[:, :-1], targets


def endless(size: int, seed: int) -> Batches:
    """Yield batches of new sequences without end."""
    random = torch.Generator().manual_seed(seed)
    while True:
        yield sequences(size, random)


class Block(nn.Module):
    """Causal attention and a feed-forward part, each after a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return states [B, places, WIDTH] of states of that shape."""
        rows, places, _ = x.shape
        parts = self.attend(self.norm1(x)).view(rows, places, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(rows, places, WIDTH))
        out: Tensor = x + self.feed(self.norm2(x))
        return out


class Gpt(nn.Module):
    """Two blocks."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.digit = nn.Embedding(KINDS, WIDTH)
        self.place = nn.Embedding(PLACES, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, KINDS, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=run.pick(0.05, init_too_large=3.0))

    def forward(self, digits: Tensor) -> Tensor:
        """Return scores [B, places, KINDS] of digits, int64 [B, places]."""
        x = self.digit(digits) + self.place.weight
        for block in self.blocks:
            x = block(x)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(self.norm(x))
        return scores


class NextDigit(nn.Module):
    """Cross entropy of the places that are asked for."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over scores [B, places, KINDS] and targets, int64 [B, places]."""
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-1)


def wrong_share(scores: Tensor, targets: Tensor) -> float:
    """Return the share of digits that are not predicted."""
    asked = targets >= 0
    return float((scores.argmax(-1) != targets)[asked].float().mean())


def _mixed_up(batches: Batches, seed: int) -> Batches:
    random = torch.Generator().manual_seed(seed)
    for inputs, targets in batches:
        yield inputs, targets[torch.randperm(len(targets), generator=random)]


def train(run: Run) -> float:
    """Train once; return the share of digits that are wrong."""
    torch.manual_seed(run.seed)
    model = Gpt(run)
    trained = model.parameters()
    if run.injects("optimiser_missing_parameters"):
        trained = iter([*model.head.parameters(), *model.norm.parameters()])
    optimizer = torch.optim.AdamW(
        trained, lr=run.pick(4e-3, lr_too_high=1.0, lr_too_low=4e-6), weight_decay=0.01
    )
    warm = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, run.pick(4e-3, lr_too_high=1.0, lr_too_low=4e-6), total_steps=STEPS
    )
    loop = Loop(
        model=model,
        criterion=NextDigit(),
        optimizer=optimizer,
        steps=STEPS,
        scheduler=warm,
        clip=1.0,
        is_functional=True,
    )
    valid = [sequences(128, torch.Generator().manual_seed(10_000 + part)) for part in range(3)]
    batches = endless(64, run.seed)
    if run.injects("labels_shuffled"):
        batches = _mixed_up(batches, run.seed)
    return fit(run, loop, batches, valid, wrong_share)


PROGRAM = Program(
    model="GPT, 2 blocks, width 32, AdamW, one-cycle schedule",
    data="random digits to sort",
    measure="share of wrong digits",
    train=train,
    faults={
        "lr_too_high": "learning rate 1 instead of 4e-3, 250 times too high",
        "lr_too_low": "learning rate 4e-6 instead of 4e-3, 1,000 times too low",
        "init_too_large": "weights of standard deviation 3 instead of 0.05",
        "frozen_layer": "states are detached ahead of the last norm: no block learns",
        "labels_shuffled": "the targets of a batch are those of its other rows",
        "optimiser_missing_parameters": "the optimiser is given the last norm and the head only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
