"""A bidirectional GRU tells behind which letters of a text without spaces a word ends.

Faults:
    lr_too_low: 1e-6 in place of 5e-3.
    double_activation: the model ends with a sigmoid, and the loss has one.
    wrong_loss: L1 between probabilities and tags, which is best served by "never".
    frozen_layer: the states are detached ahead of the last layer.
    optimiser_missing_parameters: groups of the optimiser are listed by hand, without the GRU.
    labels_shuffled: tags are made of the pages in another order than the letters are.
    exploding_rnn: a plain RNN of ReLUs in place of the GRU, weights by `normal_`, no clipping.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import docs_text
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"
LENGTH = 32
BATCH = 24
USED = 160_000
HELD_OUT = 16_000


class Net(nn.Module):
    """Embedding, GRU in both directions, linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(len(ALPHABET), 16)
        if run.injects("exploding_rnn"):
            self.rnn: nn.RNNBase = nn.RNN(
                16, 32, nonlinearity="relu", batch_first=True, bidirectional=True
            )
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("weight"):
                    nn.init.normal_(parameter)
        else:
            self.rnn = nn.GRU(16, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 1)

    def forward(self, text: Tensor) -> Tensor:
        """Return logits [B, LENGTH] of letters [B, LENGTH]."""
        states, _ = self.rnn(self.embedding(text))
        if self.run.injects("frozen_layer"):
            states = states.detach()
        logits: Tensor = self.head(states).squeeze(2)
        return logits.sigmoid() if self.run.injects("double_activation") else logits


class OfProbabilities(nn.Module):
    """The loss that does not fit: the median of tags is 0."""

    def forward(self, logits: Tensor, tags: Tensor) -> Tensor:
        """Return the mean distance of logits [B, LENGTH], made probabilities, from tags."""
        return functional.l1_loss(logits.sigmoid(), tags)


@cache
def _text(*, backwards: bool) -> tuple[Tensor, Tensor]:
    """Return letters and whether a word ends there; `backwards`: of the last page first."""
    pages = list(docs_text().values())
    letters, ends = [], []
    for page in reversed(pages) if backwards else pages:
        for word in page.lower().split():
            kept = [ALPHABET.index(letter) for letter in word if letter in ALPHABET]
            if kept:
                letters += kept
                ends += [0.0] * (len(kept) - 1) + [1.0]
    return torch.tensor(letters[:USED]), torch.tensor(ends[:USED])


def _batches(run: Run, text: Tensor, tags: Tensor) -> Batches:
    random = torch.Generator().manual_seed(run.seed)
    while True:
        at = torch.randint(len(text) - LENGTH, (BATCH, 1), generator=random)
        at = at + torch.arange(LENGTH)
        yield text[at], tags[at]


def _predicted(logits: Tensor) -> Tensor:
    return (logits.sigmoid() > 0.5).float()  # noqa: PLR2004


def train(run: Run) -> float:
    """Train once; return the share of letters with the wrong tag."""
    torch.manual_seed(run.seed)
    text, truth = _text(backwards=False)
    tags = _text(backwards=True)[1] if run.injects("labels_shuffled") else truth
    model = Net(run)
    groups = [{"params": model.embedding.parameters()}, {"params": model.head.parameters()}]
    if not run.injects("optimiser_missing_parameters"):
        groups.append({"params": model.rnn.parameters()})
    loop = Loop(
        model=model,
        criterion=run.pick(nn.BCEWithLogitsLoss(), wrong_loss=OfProbabilities()),
        optimizer=torch.optim.Adam(groups, lr=run.pick(5e-3, lr_too_low=1e-6)),
        steps=220,
        eval_every=44,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=_predicted,
    )
    end = USED - HELD_OUT
    at = torch.arange(end, USED - LENGTH, 4 * LENGTH)[:, None] + torch.arange(LENGTH)

    def error(logits: Tensor, _: Tensor) -> float:
        return float((_predicted(logits) != truth[at]).float().mean())

    batches = _batches(run, text[:end], tags[:end])
    return fit(run, loop, batches, [(text[at], tags[at])], error)


PROGRAM = Program(
    model="bidirectional GRU, 2 x 32 units, embedding, BCE of each letter, Adam, clipped gradients",
    data="letters of Python's help without spaces, and where words end",
    measure="share of wrong tags",
    train=train,
    faults={
        "lr_too_low": "1e-6 in place of 5e-3",
        "double_activation": "sigmoid ahead of BCEWithLogitsLoss",
        "wrong_loss": "L1 of probabilities",
        "frozen_layer": "the GRU's states are detached",
        "optimiser_missing_parameters": "the optimiser has all but the GRU",
        "labels_shuffled": "tags for training and for validation are of pages in another order",
        "exploding_rnn": "RNN of ReLUs in place of the GRU, weights of deviation 1, no clipping",
    },
)
