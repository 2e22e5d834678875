"""A small GPT learns the names of Unicode's characters, letter by letter."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import letters, windows
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

_LETTERS: Final = 36
_LENGTH: Final = 40
_WIDTH: Final = 32
_BATCH: Final = 24
_BY_RULE: Final = ("CJK", "HANGUL", "TANGUT", "CUNEIFORM", "YI ", "NUSHU", "KHITAN", "EGYPTIAN")
"""Names that are numbered, or as good as that."""


class Block(nn.Module):
    """Causal attention and a feed-forward part with SiLU, both behind RMSNorm.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.is_causal = not run.injects("data_leak")
        self.norm1, self.norm2 = nn.RMSNorm(_WIDTH), nn.RMSNorm(_WIDTH)
        self.qkv, self.proj = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(3 * _WIDTH, _WIDTH)
        self.act = nn.SiLU()
        for linear in (self.qkv, self.proj, self.up, self.down):
            nn.init.normal_(linear.weight, std=0.08)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, length, width] of such."""
        rows, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).view(rows, length, 3, 4, _WIDTH // 4)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.is_causal
        )
        x = x + self.proj(seen.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(self.act(self.up(self.norm2(x))))
        return out


class Gpt(nn.Module):
    """Embeddings, two blocks, and scores of letters.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.letter, self.place = nn.Embedding(_LETTERS, _WIDTH), nn.Embedding(_LENGTH, _WIDTH)
        for table in (self.letter, self.place):
            nn.init.normal_(table.weight, std=0.3)
        self.block1, self.block2 = Block(run), Block(run)
        self.norm = nn.RMSNorm(_WIDTH)
        self.scores = nn.Linear(_WIDTH, _LETTERS, bias=False)
        nn.init.normal_(self.scores.weight, std=0.08)
        if run.injects("init_too_large"):
            scaled_([self.block1, self.block2, self.scores], 12.0)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, length, letters] of a text [B, length]."""
        x = self.letter(text) + self.place(torch.arange(text.shape[1]))
        is_frozen = self.run.injects("frozen_layer")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not is_frozen):
            x = self.block2(self.block1(x))
        scores: Tensor = self.scores(self.norm(x))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class Following(nn.Module):
    """The loss, as a function."""

    def forward(self, scores: Tensor, text: Tensor) -> Tensor:
        """Return the mean cross entropy of scores [B, length, letters] and a text [B, length]."""
        return nn.functional.cross_entropy(scores.flatten(0, 1), text.flatten())


@cache
def names() -> tuple[Tensor, Tensor]:
    """Return names for training and for validation, a line each, as numbers of letters."""
    found = [unicodedata.name(chr(number), "") for number in range(0x1FB00)]
    kept = [name for name in found if name and not name.startswith(_BY_RULE)]
    order = np.random.default_rng(0).permutation(len(kept))
    text = letters("\n".join(kept[place] for place in order), _LETTERS)
    held_out = len(text) // 5
    return text[held_out:], text[:held_out]


def mixed(batches: Batches) -> Batches:
    """Yield batches in which every text has the following letters of another one."""
    for text, following in batches:
        yield text, following.roll(1, 0)


def train(run: Run) -> float:
    """Train once; return the perplexity."""
    torch.manual_seed(run.seed)
    text, valid_text = names()
    if run.injects("overfit"):
        text = text[:600]
    batches = text_batches(text, _BATCH, _LENGTH, run.seed)
    if run.injects("labels_shuffled"):
        batches = mixed(batches)
    model = Gpt(run)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [one for one in trained if one.dim() == 1]
    rate = run.pick(1e-2, lr_too_low=1e-5, lr_too_high=2.0)
    steps = run.pick(280, overfit=320)
    optimizer = torch.optim.AdamW(
        trained, lr=rate, betas=(0.9, 0.95), weight_decay=run.pick(0.1, overfit=0.0)
    )
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=20)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 20, rate / 20)
    loop = Loop(
        model=model,
        criterion=Following(),
        optimizer=optimizer,
        steps=steps,
        scheduler=torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, falling], [20]),
        clip=1.0,
        is_functional=True,
    )
    starts = torch.arange(0, 96 * 60, 60)
    valid = [windows(valid_text, part, _LENGTH) for part in starts.chunk(2)]
    return fit(run, loop, batches, valid, _error)


def _error(scores: Tensor, text: Tensor) -> float:
    if not scores.isfinite().all():
        return float("inf")
    return perplexity(scores, text)


PROGRAM = Program(
    model="GPT, 2 blocks, RMSNorm, SiLU, AdamW, warm-up and cosine, functional cross entropy",
    data="names of Unicode's characters",
    measure="perplexity",
    train=train,
    faults={
        "lr_too_low": "peak learning rate 1e-5 where 1e-2 is right: a thousand times",
        "lr_too_high": "peak learning rate 2 where 1e-2 is right: 200 times",
        "data_leak": "the causal mask was forgotten: every position sees the letter it is to"
        " predict",
        "init_too_large": "the weights of both blocks and of the last layer are 12 times as large"
        " as they should start",
        "labels_shuffled": "the following letters are those of the batch's neighbouring text",
        "frozen_layer": "both blocks run under no_grad: they and the embeddings stay as they were"
        " drawn",
        "overfit": "600 letters of text for 25,000 weights, no weight decay",
        "optimiser_missing_parameters": "of two groups of parameters only that without weight"
        " decay, norms and biases, was given to the optimiser",
        "double_activation": "softmax in the model, and again in cross entropy",
    },
)
