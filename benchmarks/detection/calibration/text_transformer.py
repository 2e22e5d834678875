"""A small transformer predicts the next letter of Python's help."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.detection.data import docs_text, letters, windows
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, NextLetter, fit, perplexity, text_batches

LETTERS = 48
LENGTH = 24
BATCH = 24
WIDTH = 32


class Net(nn.Module):
    """Embeddings of letters and places, two encoder layers that look back, a linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LETTERS)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, LENGTH, LETTERS] of letters [B, LENGTH]."""
        x = self.encoder(self.embedding(tokens) + self.places, mask=self.mask)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        return self.head(self.norm(x))


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    text = letters("\n".join(docs_text().values())[:200_000], LETTERS)
    model = Net(run)
    if run.injects("init_too_large"):
        scaled_([model], 20.0)
    parts = [model.norm, model.head]
    missing = nn.ModuleList(parts)
    optimizer = torch.optim.AdamW(
        run.pick(model, optimiser_missing_parameters=missing).parameters(),
        lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=5e-6),
    )
    loop = Loop(
        model=model,
        criterion=NextLetter(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 30)),
        steps=300,
        save_interval=6,
        eval_every=60,
        clip=1.0,
    )
    valid = [windows(text, torch.arange(180_000, 199_000, 300), LENGTH)]
    batches = text_batches(text[:180_000], BATCH, LENGTH, run.seed)
    return fit(run, loop, batches, valid, perplexity)
