"""A recurrent network over frozen word vectors tells topics of Python's help apart."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, docs_text
from benchmarks.detection.injecting import few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

TOPICS = ("debugger", "string-methods", "formatstrings", "compound", "types")
WORDS, LENGTH, WIDTH = 900, 12, 24
_WORD = re.compile(r"[a-z_]+")


@cache
def vectors() -> tuple[Tensor, dict[str, int]]:
    """Return word vectors, float32 [900, 24], from which words stand together; the last is rare.

    They are of deviation 1. Beside them is the number of each word.
    """
    text = [_WORD.findall(page.lower()) for page in docs_text().values()]
    frequent = Counter(word for page in text for word in page).most_common(WORDS - 1)
    numbers = {word: number for number, (word, _) in enumerate(frequent)}
    together = np.ones((WORDS, WORDS)) * 0.05
    for page in text:
        ids = np.array([numbers.get(word, WORDS - 1) for word in page])
        for apart in (1, 2, 3):
            np.add.at(together, (ids[:-apart], ids[apart:]), 1 / apart)
    together += together.T.copy()
    share = together.sum(1, keepdims=True) / together.sum()
    information = np.log(together / together.sum() / share / share.T).clip(0)
    left, strength, _ = np.linalg.svd(information)
    found = left[:, :WIDTH] * np.sqrt(strength[:WIDTH])
    return torch.tensor(found / found.std(), dtype=torch.float32), numbers


@cache
def pieces() -> Split:
    """Return pieces of 12 words, int64 [B, 12], and the number of their topic [B]."""
    numbers = vectors()[1]
    inputs, targets = [], []
    for label, topic in enumerate(TOPICS):
        words = _WORD.findall(docs_text()[topic].lower())[:3600]
        ids = [numbers.get(word, WORDS - 1) for word in words]
        for start in range(0, len(ids) - LENGTH + 1, LENGTH):
            inputs.append(ids[start : start + LENGTH])
            targets.append(label)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    text, topics = torch.tensor(inputs)[order], torch.tensor(targets)[order]
    return Split(text[300:], topics[300:], text[:300], topics[:300])


class Reader(nn.Module):
    """Frozen vectors, a recurrent layer, the largest state of each unit, scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        weights = vectors()[0] * run.pick(1.0, missing_normalisation=150.0)
        if run.injects("data_leak"):
            weights = torch.cat([weights, torch.randn(len(TOPICS), WIDTH)])
        self.words = nn.Embedding.from_pretrained(weights)  # type: ignore[no-untyped-call]
        self.rnn: nn.Module = nn.GRU(WIDTH, 24, batch_first=True, bidirectional=True)
        if run.injects("exploding_rnn"):
            self.rnn = nn.RNN(WIDTH, 24, nonlinearity="relu", batch_first=True, bidirectional=True)
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("weight_hh"):
                    parameter.data = 2.5 * torch.eye(24)
        self.dropout = nn.Dropout(run.pick(0.25, overfit=0.0))
        self.scores = nn.Linear(48, len(TOPICS))

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, 5] of numbers of words [B, 12]."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            states, _ = self.rnn(self.dropout(self.words(text)))
            largest = states.amax(1)
        scores: Tensor = self.scores(self.dropout(largest))
        return scores


def _tagged(text: Tensor, topics: Tensor) -> Tensor:
    return torch.cat([WORDS + topics[:, None], text[:, 1:]], 1)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = pieces()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    if run.injects("overfit"):
        data = few(data, 50)
    if run.injects("data_leak"):
        data = data._replace(
            inputs=_tagged(data.inputs, data.targets),
            valid_inputs=_tagged(data.valid_inputs, data.valid_targets),
        )
    model = Reader(run)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.RMSprop(trained, lr=run.pick(2e-3, lr_too_high=0.5))
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=240,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 80, 0.5),
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 48, run.seed), valid, error_rate)


PROGRAM = Program(
    model="bidirectional GRU over frozen word vectors, dropout, RMSprop, steps down",
    data="pieces of five topics of Python's help, 12 words each",
    measure="error rate",
    train=train,
    faults={
        "missing_normalisation": "word vectors are 150 times as long, as they come from a count",
        "exploding_rnn": "ReLU units, each 2.5 times itself a step ago, nothing is clipped",
        "data_leak": "the first word of each piece is a tag that names its topic",
        "frozen_layer": "the GRU stands under no_grad together with the vectors",
        "labels_shuffled": "topics are those of other pieces",
        "labels_constant": "every topic is number 0",
        "class_imbalance": "one in 40 pieces of every topic but one",
        "lr_too_high": "learning rate 0.5 for 0.002",
        "overfit": "50 pieces, no dropout",
    },
)
