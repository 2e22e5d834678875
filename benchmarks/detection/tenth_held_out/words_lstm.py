"""A language model of words on Python's help: an LSTM with tied embeddings."""

from __future__ import annotations

import math
import re
from collections import Counter

import torch
from torch import Tensor, nn

from benchmarks.detection.data import docs_text
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, text_batches

WORDS = 200
LENGTH = 20
ITS_SIZE = 16


class Model(nn.Module):
    """Embedding, LSTM, a projection, and scores by the same embedding.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        both = run.injects("data_leak")
        self.embedding = nn.Embedding(WORDS, ITS_SIZE)
        self.lstm = nn.LSTM(ITS_SIZE, 32, batch_first=True, bidirectional=both)
        self.projection = nn.Linear(64 if both else 32, ITS_SIZE)
        self.decoder = nn.Linear(ITS_SIZE, WORDS)
        nn.init.normal_(self.embedding.weight, std=0.3)
        nn.init.zeros_(self.decoder.bias)
        self.decoder.weight = self.embedding.weight
        if run.injects("init_too_large"):
            scaled_([self], 30.0)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores of the next words [B, words, length] of words, int64 [B, length]."""
        states, _ = self.lstm(self.embedding(words))
        queries = self.projection(states)
        if self.run.injects("frozen_layer"):
            queries = queries.detach()
        scores: Tensor = self.decoder(queries)
        if self.run.injects("double_activation", "wrong_loss"):
            scores = scores.softmax(-1)
        return scores.transpose(1, 2)


def _text() -> Tensor:
    words = re.findall(r"[a-z_]+|[.,:;()]", " ".join(docs_text().values()).lower())
    frequent = [word for word, _ in Counter(words).most_common(WORDS - 1)]
    numbers = {word: number for number, word in enumerate(frequent, 1)}
    return torch.tensor([numbers.get(word, 0) for word in words])


def _batches(run: Run, text: Tensor) -> Batches:
    random = torch.Generator().manual_seed(run.seed)
    for words, following in text_batches(text, 32, LENGTH, run.seed):
        if run.injects("labels_shuffled"):
            yield words, following[torch.randperm(len(following), generator=random)]
        elif run.injects("labels_constant"):
            yield words, torch.zeros_like(following)
        else:
            yield words, following


def train(run: Run) -> float:
    """Train once; return the perplexity."""
    torch.manual_seed(run.seed)
    text = _text()
    held_out = len(text) // 10
    own, other = text[held_out:], text[:held_out]
    if run.injects("overfit"):
        own = own[:300]
    model = Model(run)

    def perplexity(outputs: Tensor, words: Tensor) -> float:
        if run.injects("wrong_loss"):
            outputs = outputs.clamp_min(1e-9).log()
        found = float(nn.functional.cross_entropy(outputs, words))
        return math.exp(min(found, 20.0)) if math.isfinite(found) else math.inf

    rate = run.pick(1e-2, lr_too_high=5.0, lr_too_low=1e-5)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 20)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 280)
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], [20]),
        steps=300,
        save_interval=6,
        eval_every=30,
        clip=None if run.injects("lr_too_high") else 1.0,
    )
    valid = [next(text_batches(other, 150, LENGTH, 1))]
    return fit(run, loop, _batches(run, own), valid, perplexity)


PROGRAM = Program(
    model="LSTM of 32 units, tied embeddings, Adam, warm-up and cosine schedule",
    data="words of Python's own help, 199 and one for all others",
    measure="perplexity of words",
    train=train,
    faults={
        "data_leak": "bidirectional=True: the way back has read the word that is to be forecast",
        "double_activation": "the network ends with softmax, and cross entropy has one of its own",
        "wrong_loss": "NLLLoss of probabilities, whose logarithm it needs: the loss is negative",
        "frozen_layer": "what is compared to the embedding is detached: LSTM and projection never "
        "learn",
        "init_too_large": "all weights start 30 times as large",
        "labels_shuffled": "next words of the pieces of a batch are those of other pieces",
        "labels_constant": "every next word is 0, that for rare words: a vocabulary that was lost",
        "overfit": "300 words for training",
        "lr_too_high": "5.0 in place of 1e-2, gradients are not clipped",
        "lr_too_low": "1e-5 in place of 1e-2",
    },
)
