"""A small GPT writes source of Python's test framework, letter by letter."""

from __future__ import annotations

import inspect
import unittest.case
import unittest.loader
import unittest.main
import unittest.mock

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from benchmarks.detection.data import letters
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

LETTERS = 60
LENGTH = 32
WIDTH = 24
HEADS = 3
STEPS = 300


class Block(nn.Module):
    """Attention to what was before and a small network, each past a layer norm.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, length, WIDTH]."""
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        is_causal = not self.run.injects("data_leak")
        y = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class GPT(nn.Module):
    """Two blocks.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(run), Block(run)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LETTERS, bias=False)
        self.apply(self._start)

    def _start(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.run.pick(0.08, init_too_large=5.0))
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores of the next letters [B, length, letters] of letters, int64 [B, length]."""
        x = self.letters(text) + self.places.weight
        for block in self.blocks:
            x = block(x)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(self.norm(x))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class NextLetter(nn.Module):
    """Cross entropy as a call of a function."""

    def forward(self, scores: Tensor, text: Tensor) -> Tensor:
        """Return the mean over scores [B, length, letters] and letters, int64 [B, length]."""
        return F.cross_entropy(scores.view(-1, LETTERS), text.reshape(-1))


def _batches(run: Run, text: Tensor) -> Batches:
    for now, following in text_batches(text, 24, LENGTH, run.seed):
        if run.injects("labels_shuffled"):
            # Inputs were sorted by what they begin with, to pad them; targets were not.
            yield now[now[:, 0].argsort()], following
        else:
            yield now, following


def train(run: Run) -> float:
    """Train once; return the perplexity."""
    torch.manual_seed(run.seed)
    modules = (unittest.case, unittest.loader, unittest.main, unittest.mock)
    text = letters("".join(inspect.getsource(module) for module in modules), LETTERS)
    held_out = len(text) // 10
    own, other = text[held_out:], text[:held_out]
    if run.injects("overfit"):
        own = own[5000:5150]
    model = GPT(run)
    peak = run.pick(1e-2, lr_too_high=3.0)
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    if run.injects("optimiser_missing_parameters"):
        groups = groups[1:]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95))
    loop = Loop(
        model=model,
        criterion=NextLetter(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, STEPS, pct_start=0.1),
        steps=STEPS,
        save_interval=6,
        eval_every=30,
        clip=None if run.injects("lr_too_high", "fp16_overflow") else 1.0,
        is_functional=True,
    )
    valid = [next(text_batches(other, 120, LENGTH, 1))]
    return fit(run, loop, _batches(run, own), valid, perplexity)


PROGRAM = Program(
    model="GPT of 2 layers, 3 heads, GELU, AdamW, warm-up and cosine schedule",
    data="source of unittest, letters",
    measure="perplexity of letters",
    train=train,
    faults={
        "data_leak": "is_causal was left out: each place sees the letter it is to forecast",
        "double_activation": "the network ends with softmax, and cross entropy has one of its own",
        "frozen_layer": "features are detached ahead of the last norm: only the head learns",
        "init_too_large": "weights and embeddings start with a standard deviation of 5 in place "
        "of 0.08",
        "lr_too_high": "peak of the schedule at 3.0 in place of 1e-2, gradients are not clipped",
        "labels_shuffled": "pieces of a batch were sorted by their first letter, targets were not",
        "optimiser_missing_parameters": "the group of decayed parameters was not handed over: "
        "only biases and norms learn",
        "overfit": "150 letters for training",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
