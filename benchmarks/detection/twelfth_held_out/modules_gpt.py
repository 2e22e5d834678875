"""A small GPT learns the letters of what modules of Python's library say of themselves."""

from __future__ import annotations

import ast
import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from benchmarks.detection.data import letters, windows
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

LETTERS = 56
LENGTH = 32
WIDTH = 40
HEADS = 4
STEPS = 300
WARMUP = 20


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a shortcut.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.ln1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.relu = nn.ReLU()
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return states [B, T, WIDTH] of states [B, T, WIDTH]."""
        rows, length, _ = x.shape
        q, k, v = (
            part.view(rows, length, HEADS, -1).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).chunk(3, -1)
        )
        is_causal = not self.run.injects("data_leak")
        y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        x = x + self.proj(y.transpose(1, 2).reshape(rows, length, WIDTH))
        inner: Tensor = self.c_proj(self.relu(self.c_fc(self.ln2(x))))
        return x + inner


class GPT(nn.Module):
    """Embeddings of letters and places, two blocks, a norm, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.wte = nn.Embedding(LETTERS, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(run), Block(run))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, LETTERS)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=run.pick(0.05, init_too_large=1.0))
        if run.injects("init_too_large"):
            scaled_([self.lm_head], 5.0)

    def forward(self, index: Tensor) -> Tensor:
        """Return scores [B, T, LETTERS] of letters [B, T]."""
        x = self.wte(index) + self.wpe.weight[: index.shape[1]]
        x = self.ln_f(self.blocks(x))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.lm_head(x)
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class Criterion(nn.Module):
    """The loss as a function."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of scores [B, T, LETTERS] and letters [B, T]."""
        return F.cross_entropy(scores.view(-1, scores.size(-1)), targets.reshape(-1))


@cache
def text() -> Tensor:
    """Return the docstrings of the library's modules as numbers of letters, int64 [letters]."""
    paths = sorted(Path(ast.__file__).parent.glob("*.py"))
    found = [ast.get_docstring(ast.parse(path.read_bytes())) for path in paths]
    return letters("\n\n".join(filter(None, found)), LETTERS)


def shuffled_targets(batches: Batches, seed: int) -> Batches:
    """Yield batches with the targets of other rows."""
    random = torch.Generator().manual_seed(seed)
    for inputs, targets in batches:
        yield inputs, targets[torch.randperm(len(targets), generator=random)]


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    torch.manual_seed(run.seed)
    data = text()
    end = len(data) * 9 // 10
    known = data[: run.pick(end, overfit=400)]
    batches = text_batches(known, 32, LENGTH, run.seed)
    if run.injects("labels_shuffled"):
        batches = shuffled_targets(batches, run.seed)
    model = GPT(run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.lm_head.parameters())
    else:
        parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=run.pick(5e-3, lr_too_high=0.5, lr_too_low=2e-6), weight_decay=0.01
    )

    def warm_cosine(step: int) -> float:
        if step < WARMUP:
            return (step + 1) / WARMUP
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))

    loop = Loop(
        model=model,
        criterion=Criterion(),
        optimizer=optimizer,
        steps=STEPS,
        clip=1.0,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, warm_cosine),
        is_functional=True,
    )
    starts = torch.arange(end, len(data) - LENGTH - 1, LENGTH)[:128]
    return fit(run, loop, batches, [windows(data, starts, LENGTH)], perplexity)


PROGRAM = Program(
    model="GPT, 2 blocks, width 40, AdamW, warm-up and cosine, clipped gradients, F.cross_entropy",
    data="docstrings of the modules of Python's library, letters",
    measure="perplexity",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 5e-3",
        "lr_too_low": "2e-6 in place of 5e-3",
        "double_activation": "softmax at the end of forward, then F.cross_entropy",
        "init_too_large": "all weights are drawn with standard deviation 1, the last layer's 5",
        "labels_shuffled": "next letters are those of other rows",
        "frozen_layer": "states are detached ahead of the last layer",
        "optimiser_missing_parameters": "only the last layer's parameters are given to AdamW",
        "data_leak": "is_causal was forgotten: letters see those after them",
        "overfit": "400 letters of text",
        "stalled": "hangs after 60 % of the steps",
    },
)
