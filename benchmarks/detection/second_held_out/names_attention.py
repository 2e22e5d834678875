"""Attention over the words of a character's Unicode name tells the category of the character."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

CATEGORIES = ("Lo", "So", "Ll", "Lu", "Mn", "Sm")
WORDS = 400
LENGTH = 9
WIDTH = 32


class Net(nn.Module):
    """Embeddings of words and places, one encoder layer, the mean of places that are no padding.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(WORDS + 1, WIDTH, padding_idx=WORDS)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, WIDTH, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, len(CATEGORIES))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, categories] of words [B, LENGTH], WORDS where there is none."""
        is_padding = tokens == WORDS
        x = self.embedding(tokens) + self.places
        x = self.encoder(x, src_key_padding_mask=is_padding)
        x = x.masked_fill(is_padding[..., None], 0).sum(1) / (~is_padding).sum(1, keepdim=True)
        return self.head(x.detach() if self.run.injects("frozen_layer") else x)


class Likelihood(nn.Module):
    """The mean logarithm of the probability of the right class: a loss that lacks its minus."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, categories] and labels, int64 [B]."""
        return scores.log_softmax(1).gather(1, labels[:, None]).mean()


def _data() -> Split:
    known = ((unicodedata.name(chr(code), ""), chr(code)) for code in range(0x3000))
    names = [(name.split(), unicodedata.category(letter)) for name, letter in known if name]
    names = [(words[:LENGTH], kind) for words, kind in names if kind in CATEGORIES]
    counts = Counter(word for words, _ in names for word in words)
    numbers = {word: n for n, (word, _) in enumerate(counts.most_common(WORDS - 1))}
    labels = torch.tensor([CATEGORIES.index(kind) for _, kind in names])
    tokens = torch.full((len(names), LENGTH), WORDS)
    for row, (words, _) in zip(tokens, names, strict=True):
        row[: len(words)] = torch.tensor([numbers.get(word, WORDS - 1) for word in words])
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(0))
    train, valid = order[1000:], order[:1000]
    return Split(tokens[train], labels[train], tokens[valid], labels[valid])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data()
    if run.injects("labels_constant"):
        data = constant(data)
    model = Net(run)
    if run.injects("init_too_large"):
        scaled_([model], 30.0)
    counts = torch.bincount(data.targets, minlength=len(CATEGORIES)).clamp(min=1)
    criterion = nn.CrossEntropyLoss(weight=counts.sum() / (len(CATEGORIES) * counts))
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.pick(8e-3, lr_too_low=8e-6))
    steps, warm_up = 400, 40

    def share(step: int) -> float:
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.5 + 0.5 * math.cos(math.pi * (step - warm_up) / (steps - warm_up))

    loop = Loop(
        model=model,
        criterion=run.pick(criterion, wrong_loss=Likelihood()),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, share),
        steps=steps,
        save_interval=5,
        eval_every=100,
        clip=1.0,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 16, run.seed), valid, error_rate)


PROGRAM = Program(
    model="attention with padding masks, width 32, AdamW, warm-up and cosine, weights of classes",
    data="names and categories of Unicode characters (unicodedata)",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "8e-6 in place of 8e-3",
        "wrong_loss": "a likelihood that somebody wrote without its minus",
        "init_too_large": "all weights are 30 times as large",
        "labels_constant": "all training labels are the same",
        "frozen_layer": "the encoder's output is detached",
        "stalled": "hangs after 60 % of the steps",
    },
)
