"""A small GPT writes C++: the next letter of PyTorch's own headers.

Faults:
    lr_too_high: 300 times what it should be.
    double_activation: the model returns probabilities, and the loss has a softmax.
    init_too_large: weights are drawn by `normal_` without its `std`, which is 1 then.
    optimiser_missing_parameters: blocks are in a list, so that `parameters()` lacks them.
    data_leak: attention looks ahead.
    stalled: the loader hangs.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import letters, windows
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, NextLetter, fit, perplexity, text_batches

LETTERS = 64
LENGTH = 24
BATCH = 32
WIDTH = 32
HEADS = 4
STEPS = 225
WARMUP = 30


class Block(nn.Module):
    """Attention and two linear layers, each behind a norm and beside a connection that skips it.

    Args:
        looks_ahead: Whether a letter attends to those behind it.
    """

    def __init__(self, *, looks_ahead: bool) -> None:
        super().__init__()
        self.is_causal = not looks_ahead
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return states [B, LENGTH, WIDTH] of states [B, LENGTH, WIDTH]."""
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        x = x + self.proj(seen.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class GPT(nn.Module):
    """Embeddings of letters and places, two blocks, the embedding once more.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        blocks = [Block(looks_ahead=run.injects("data_leak")) for _ in range(2)]
        listed = run.injects("optimiser_missing_parameters")
        self.blocks = blocks if listed else nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LETTERS, bias=False)
        self.head.weight = self.letters.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=run.pick(0.1, init_too_large=1.0))

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, LENGTH, LETTERS] of letters [B, LENGTH]."""
        x = self.letters(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


@cache
def _text() -> Tensor:
    headers = Path(torch.__file__).parent / "include" / "c10" / "core"
    source = "\n".join(path.read_text() for path in sorted(headers.glob("*.h")))
    return letters(source[:330_000], LETTERS)


def _rate(step: int) -> float:
    return min((step + 1) / WARMUP, 0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    torch.manual_seed(run.seed)
    text = _text()
    end = len(text) - 30_000
    model = GPT(run)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=run.pick(1e-2, lr_too_high=3.0), betas=(0.9, 0.95), weight_decay=0.1
    )
    loop = Loop(
        model=model,
        criterion=NextLetter(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, _rate),
        steps=STEPS,
        save_interval=6,
        eval_every=45,
        clip=1.0,
    )
    valid = [windows(text, torch.arange(end, len(text) - LENGTH - 1, 300), LENGTH)]
    batches = text_batches(text[:end], BATCH, LENGTH, run.seed)
    return fit(run, loop, batches, valid, perplexity)


PROGRAM = Program(
    model="GPT, 2 blocks, width 32, tied embedding, AdamW, warm-up and cosine, clipped gradients",
    data="letters of the C++ headers that come with PyTorch",
    measure="perplexity",
    train=train,
    faults={
        "lr_too_high": "3 in place of 1e-2",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_too_large": "weights are drawn with a standard deviation of 1 in place of 0.1",
        "optimiser_missing_parameters": "blocks in a list, which the optimiser does not get",
        "data_leak": "attention without a mask",
        "stalled": "hangs after 60 % of the steps",
    },
)
