"""Words of source code, as vectors, tell which module of Python's library a piece is from."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, code_text
from benchmarks.detection.injecting import shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

WORDS = 600
MODULES = 8
LENGTH = 50


class Net(nn.Module):
    """The mean of fixed vectors of words, and two layers that are trained.

    Args:
        run: What is injected.
        vectors: Of the words [WORDS, D], which are not trained.
    """

    def __init__(self, run: Run, vectors: Tensor) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag.from_pretrained(vectors, mode="mean")
        self.hidden = nn.Linear(vectors.shape[1], 64)
        self.act = nn.Tanh()
        self.head = nn.Linear(64, MODULES)
        self.out = run.pick(nn.LogSoftmax(dim=1), no_activation=nn.Identity())

    def forward(self, words: Tensor) -> Tensor:
        """Return logarithms of probabilities [B, MODULES] of words [B, LENGTH]."""
        return self.out(self.head(self.act(self.hidden(self.embedding(words)))))


def _data() -> tuple[Split, Tensor]:
    texts = [re.findall(r"[a-z]{2,}", text.lower()) for text in code_text().values()]
    counts = Counter(word for text in texts for word in text)
    numbers = {word: n for n, (word, _) in enumerate(counts.most_common(WORDS - 1))}
    pieces, labels = [], []
    for label, text in enumerate(texts):
        found = [numbers.get(word, WORDS - 1) for word in text]
        starts = range(0, len(found) - LENGTH, LENGTH)
        pieces += [found[start : start + LENGTH] for start in starts]
        labels += [label] * len(starts)
    x, y = torch.tensor(pieces), torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    held_out = len(x) // 4
    train, valid = order[held_out:], order[:held_out]
    return Split(x[train], y[train], x[valid], y[valid]), _vectors(x[train].tolist())


def _vectors(pieces: list[list[int]]) -> Tensor:
    """Return vectors of words [WORDS, 48] from which words stand in one piece (SVD)."""
    beside = np.zeros((len(pieces), WORDS))
    for row, piece in enumerate(pieces):
        np.add.at(beside[row], piece, 1)
    _, scales, words = np.linalg.svd(np.log1p(beside), full_matrices=False)
    vectors = words[:48].T * scales[:48]
    vectors = (vectors - vectors.mean(0)) / vectors.std(0)
    return torch.tensor(vectors, dtype=torch.float32)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data, vectors = _data()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    model = Net(run, vectors)
    if run.injects("optimiser_missing_parameters"):
        trained = model.head.parameters()
    else:
        trained = (p for p in model.parameters() if p.requires_grad)
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss(),
        optimizer=torch.optim.Adagrad(trained, lr=run.pick(0.03, lr_too_low=3e-6)),
        steps=300,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="mean of fixed word vectors, MLP 48-64-8, tanh, Adagrad",
    data="words of the source of eight modules of Python's library",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "3e-6 in place of 0.03",
        "no_activation": "LogSoftmax ahead of NLLLoss is missing",
        "labels_shuffled": "training labels are permuted",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
    },
)
