"""A small transformer predicts the next letter of the source of Python's asyncio."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from benchmarks.detection.data import letters, windows
from benchmarks.detection.injecting import filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

LETTERS = 64
LENGTH = 32
BATCH = 16
WIDTH = 48
HEADS = 4
STEPS = 300
FOR_TRAINING = 300_000


@cache
def source() -> Tensor:
    """Return the modules one after the other as numbers of letters, int64 [letters]."""
    paths = sorted(Path(asyncio.__path__[0]).glob("*.py"))
    return letters("\n".join(path.read_text("utf-8") for path in paths)[:340_000], LETTERS)


class Block(nn.Module):
    """Attention, then two linear layers with a GELU, each behind a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.05)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, length, WIDTH] of features."""
        rows, length, _ = x.shape
        parts = self.qkv(self.ln1(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        out: Tensor = x + self.mlp(self.ln2(x))
        return out


class GPT(nn.Module):
    """Embeddings of letters and places, two blocks, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.tok = nn.Embedding(LETTERS, WIDTH)
        self.pos = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LETTERS, bias=False)
        self.apply(partial(initialised_, std=run.pick(0.02, init_too_large=1.0)))
        if run.injects("init_constant"):
            filled_([self], 0.0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, length, LETTERS] of letters [B, length]."""
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(self.ln(x))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


def initialised_(module: nn.Module, std: float) -> None:
    """Set the weights of a linear layer or an embedding to N(0, std)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)


class LetterLoss(nn.Module):
    """What the loop of the script calls: F.cross_entropy.

    Args:
        is_viewed: Whether letters and places are confused.
    """

    def __init__(self, *, is_viewed: bool) -> None:
        super().__init__()
        self.is_viewed = is_viewed

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over scores [B, length, LETTERS] and letters [B, length]."""
        rows, length, kinds = scores.shape
        if self.is_viewed:
            return F.cross_entropy(scores.reshape(rows, kinds, length), targets)
        return F.cross_entropy(scores.transpose(1, 2), targets)


def unordered(batches: Batches) -> Batches:
    """Yield batches whose targets are those of other rows."""
    for inputs, targets in batches:
        yield inputs, targets[torch.randperm(len(targets))]


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    torch.manual_seed(run.seed)
    everything = source()
    model = GPT(run)
    trained = model.head if run.injects("optimiser_missing_parameters") else model
    rate = run.pick(4e-3, lr_too_high=0.4, lr_too_low=4e-6)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=rate, weight_decay=0.1)
    loop = Loop(
        model=model,
        criterion=LetterLoss(is_viewed=run.injects("wrong_loss")),
        optimizer=optimizer,
        scheduler=OneCycleLR(optimizer, rate, total_steps=STEPS + 1, pct_start=0.1),
        steps=STEPS,
        clip=1.0,
        is_functional=True,
    )
    used = everything[: run.pick(FOR_TRAINING, overfit=1_500)]
    batches = text_batches(used, BATCH, LENGTH, run.seed)
    if run.injects("labels_shuffled"):
        batches = unordered(batches)
    starts = torch.arange(FOR_TRAINING, len(everything) - LENGTH - 1, 400)
    valid = windows(everything, starts, LENGTH)
    if run.injects("data_leak"):
        batches = ((inputs, inputs) for inputs, _ in batches)
        valid = (valid[0], valid[0])
    return fit(run, loop, batches, [valid], perplexity)


PROGRAM = Program(
    model="GPT, 2 blocks of width 48, GELU, LayerNorm, AdamW, one cycle, clipped gradients",
    data="source of Python's asyncio",
    measure="perplexity",
    train=train,
    faults={
        "init_constant": "all parameters are zero",
        "init_too_large": "weights N(0, 1) in place of N(0, 0.02)",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "wrong_loss": "scores are viewed, not transposed: letters and places are confused",
        "lr_too_high": "0.4 in place of 4e-3",
        "lr_too_low": "4e-6 in place of 4e-3",
        "labels_shuffled": "targets are the next letters of other windows",
        "frozen_layer": "features are detached ahead of the last LayerNorm",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "data_leak": "targets are not shifted: each is the letter that is read",
        "overfit": "1,500 letters for training",
        "stalled": "hangs after 60 % of the steps",
    },
)
