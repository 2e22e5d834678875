"""A small transformer predicts the next letter of the source of Python's decimal module."""

from __future__ import annotations

import _pydecimal
import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.detection.data import letters, windows
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

LETTERS = 60
LENGTH = 32
BATCH = 24
STEPS = 160
WARM_UP = 20
HELD_FROM, HELD_TO = 90_000, 114_000


@cache
def _text() -> Tensor:
    """Return the source, int64 [letters]."""
    return letters(Path(_pydecimal.__file__).read_text("utf-8"), LETTERS)


class TransformerModel(nn.Module):
    """Token and position embeddings, two encoder layers with a causal mask, decoder.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        drop = run.pick(0.1, overfit=0.0)
        self.tokens = nn.Embedding(LETTERS, 64)
        self.places = nn.Embedding(LENGTH, 64)
        layer = nn.TransformerEncoderLayer(
            64, 4, 128, drop, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(64), enable_nested_tensor=False)
        self.decoder = nn.Linear(64, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))
        if run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.normal_(parameter)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, length, LETTERS] of letters [B, length]."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        mask = None if self.run.injects("data_leak") else self.mask
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                x = self.encoder(x, mask=mask)
        else:
            x = self.encoder(x, mask=mask)
        scores: Tensor = self.decoder(x)
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class NextToken(nn.Module):
    """Cross entropy of all positions.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.cross_entropy = nn.CrossEntropyLoss()

    def forward(self, scores: Tensor, tokens: Tensor) -> Tensor:
        """Return the mean over scores [B, length, LETTERS] and letters [B, length]."""
        if self.run.injects("wrong_loss"):
            scores = scores.transpose(0, 1)  # as for a model that has the batch second
        loss: Tensor = self.cross_entropy(scores.reshape(-1, LETTERS), tokens.reshape(-1))
        return loss


def _elsewhere(batches: Batches) -> Batches:
    for tokens, following in batches:
        yield tokens, following[torch.randperm(len(following))]


def _rate(run: Run, step: int) -> float:
    """Return by what the learning rate is multiplied."""
    if run.injects("lr_too_low"):
        return 0.9**step
    left = max(step - WARM_UP, 0) / (STEPS - WARM_UP)
    return min((step + 1) / WARM_UP, 1.0) * 0.5 * (1 + math.cos(math.pi * left))


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    torch.manual_seed(run.seed)
    text = _text()
    held_out = text[HELD_FROM:HELD_TO]
    text = torch.cat([text[:HELD_FROM], text[HELD_TO:]])
    if run.injects("overfit"):
        text = text[:400]
    model = TransformerModel(run)
    given = model.decoder if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.AdamW(given.parameters(), lr=run.pick(5e-3, lr_too_high=0.3))
    loop = Loop(
        model=model,
        criterion=NextToken(run),
        optimizer=optimizer,
        steps=STEPS,
        save_interval=8,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(run, step)),
        clip=run.pick(1.0, lr_too_high=None),
        is_own_module=True,
    )
    valid = [windows(held_out, torch.arange(0, len(held_out) - LENGTH - 1, 400), LENGTH)]
    batches = text_batches(text, BATCH, LENGTH, run.seed)
    if run.injects("labels_shuffled"):
        batches = _elsewhere(batches)
    return fit(run, loop, batches, valid, perplexity)


PROGRAM = Program(
    model="transformer, 2 pre-norm layers, GELU, AdamW, warm-up and cosine schedule, clipped",
    data="letters of the source of Python's decimal module",
    measure="perplexity",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 5e-3, no clipping",
        "lr_too_low": "a decay of 0.9 that is meant for epochs is applied at each step",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_too_large": "all parameters from a normal distribution of deviation 1",
        "init_constant": "all parameters are zero",
        "wrong_loss": "scores are flattened with the batch second, tokens with the batch first",
        "labels_shuffled": "pieces of text are shuffled, and what follows them is not",
        "frozen_layer": "the encoder runs under no_grad",
        "optimiser_missing_parameters": "the optimiser has the decoder only",
        "data_leak": "the encoder has no causal mask",
        "overfit": "400 letters, no dropout",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
