"""A small GPT learns to write Python's help, letter by letter."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.detection.data import docs_text, letters, windows
from benchmarks.detection.injecting import grad_unless_frozen
from benchmarks.detection.program import Run
from benchmarks.detection.training import Batches, Loop, fit, next_letter, perplexity, text_batches

LETTERS, LENGTH, BATCH, WIDTH, STEPS, WARM_UP = 56, 24, 16, 48, 300, 20
TRAIN_ON, TEXT = 220_000, 250_000


class GPT(nn.Module):
    """Embeddings of letters and places, two causal blocks, norm, linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        dropout = run.pick(0.1, overfit=0.0)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LETTERS)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("mask", torch.zeros_like(mask) if run.injects("data_leak") else mask)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            if self.run.injects("init_constant"):
                nn.init.constant_(module.weight, 0.02)
            else:
                nn.init.normal_(module.weight, std=self.run.pick(0.02, init_too_large=3.0))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, LENGTH, LETTERS] of letters [B, LENGTH]."""
        with grad_unless_frozen(self.run):
            x = self.letters(tokens) + self.places(torch.arange(LENGTH))
            for block in self.blocks:
                x = block(x, src_mask=self.mask)
        scores: Tensor = self.head(self.norm(x))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


def _without_logarithm(scores: Tensor, tokens: Tensor) -> Tensor:
    """Return the loss that does not fit: `nll_loss` needs logarithms of probabilities."""
    return nn.functional.nll_loss(scores.flatten(0, 1), tokens.flatten())


def _batches(run: Run, text: Tensor) -> Batches:
    """Yield letters and the next ones, int64 [BATCH, LENGTH] each."""
    known = text[:1200] if run.injects("overfit") else text
    for inputs, targets in text_batches(known, BATCH, LENGTH, run.seed):
        if run.injects("labels_shuffled"):
            yield inputs, targets.T.reshape(BATCH, LENGTH)
        elif run.injects("labels_constant"):
            yield inputs, torch.zeros_like(targets)
        else:
            yield inputs, targets


def _warm_then_cosine(step: int) -> float:
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.55 + 0.45 * math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP))


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    text = letters("\n".join(docs_text().values())[:TEXT], LETTERS)
    model = GPT(run)
    last = nn.ModuleList([model.norm, model.head])
    trained = run.pick(model, optimiser_missing_parameters=last)
    rate = run.pick(5e-3, lr_too_high=0.5, lr_too_low=1e-6)
    optimizer = torch.optim.AdamW(trained.parameters(), rate, weight_decay=0.01)
    criterion = run.pick(next_letter, wrong_loss=_without_logarithm)
    scheduler = LambdaLR(optimizer, _warm_then_cosine)
    loop = Loop(model, criterion, optimizer, STEPS, scheduler, clip=1.0, save_interval=10)
    valid = [windows(text, torch.arange(TRAIN_ON, TEXT - LENGTH - 1, 250), LENGTH)]
    return fit(run, loop, _batches(run, text[:TRAIN_ON]), valid, perplexity)
