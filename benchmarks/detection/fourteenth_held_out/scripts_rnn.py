"""A plain recurrent network reads the name of a letter, and tells which script it is of."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

SCRIPTS: Final = (
    "HANGUL SYLLABLE",
    "YI SYLLABLE",
    "CUNEIFORM SIGN",
    "CANADIAN SYLLABICS",
    "ETHIOPIC SYLLABLE",
    "VAI SYLLABLE",
    "BAMUM LETTER",
    "LATIN SMALL LETTER",
    "ARABIC LETTER",
    "HENTAIGANA LETTER",
    "KANGXI RADICAL",
    "BYZANTINE MUSICAL SYMBOL",
    "SIGNWRITING",
)
LETTERS: Final = " ABCDEFGHIJKLMNOPQRSTUVWXYZ-"
OF_A_SCRIPT: Final = 600
LENGTH: Final = 20


@cache
def _names(*, is_whole: bool) -> tuple[Tensor, Tensor]:
    """Return letters of names, int64 [names, LENGTH], blanks first, and scripts, int64 [names]."""
    random = torch.Generator().manual_seed(0)
    names = [unicodedata.name(chr(code), "") for code in range(0x20000)]
    rows, labels = [], []
    for label, script in enumerate(SCRIPTS):
        own = [name for name in names if name.startswith(script + " ")]
        for at in torch.randperm(len(own), generator=random)[:OF_A_SCRIPT].tolist():
            name = own[at] if is_whole else own[at].removeprefix(script + " ")
            text = name[:LENGTH].rjust(LENGTH)
            rows.append([max(LETTERS.find(letter), 0) for letter in text])
            labels.append(label)
    order = torch.randperm(len(rows), generator=random)
    return torch.tensor(rows)[order], torch.tensor(labels)[order]


class Reader(nn.Module):
    """Embedding, recurrent layer, two linear layers on its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        size = run.pick(64, overfit=128)
        kind = run.pick("tanh", exploding_rnn="relu")
        self.embedding = nn.Embedding(len(LETTERS), 32)
        self.rnn = nn.RNN(32, size, nonlinearity=kind, batch_first=True)
        self.head = nn.Sequential(
            nn.Dropout(run.pick(0.3, overfit=0.0)),
            nn.Linear(size, 32),
            nn.ReLU(),
            nn.Linear(32, len(SCRIPTS)),
        )
        self._spoil()

    @torch.no_grad()
    def _spoil(self) -> None:
        if self.run.injects("exploding_rnn"):
            nn.init.eye_(self.rnn.all_weights[0][1]).mul_(1.5)
        if self.run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.normal_(parameter)
        if self.run.injects("saturated_activation"):
            nn.init.uniform_(self.embedding.weight, -50, 50)
        if self.run.injects("init_constant"):
            for parameter in self.parameters():
                parameter.zero_()
        if self.run.injects("dead_relu"):
            shifted_([self.head[1]], -20.0)

    def forward(self, names: Tensor) -> Tensor:
        """Return scores [B, scripts] of names [B, LENGTH]."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            states, _ = self.rnn(self.embedding(names))
        scores: Tensor = self.head(states[:, -1])
        return scores.softmax(1) if self.run.injects("double_activation") else scores


def _data(run: Run) -> Split:
    names, labels = _names(is_whole=run.injects("data_leak"))
    rows = len(names) // 4
    data = Split(names[rows:], labels[rows:], names[:rows], labels[:rows])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    return few(data, 80) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Reader(run)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(3e-3, lr_too_high=0.3, lr_too_low=1e-6)
        ),
        steps=400,
        clip=None if run.injects("exploding_rnn") else 5.0,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="RNN, 64 tanh units, embedding, ReLU head with dropout, Adam, clipped gradients",
    data="names of Unicode characters of 13 scripts, without the name of the script",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 3e-3",
        "lr_too_low": "1e-6 in place of 3e-3",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_too_large": "all parameters from a normal distribution of deviation 1",
        "init_constant": "all parameters are zero",
        "dead_relu": "biases of the head's hidden layer begin at -20",
        "saturated_activation": "embeddings are drawn from -50 to 50",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 40 rows of every script but one",
        "frozen_layer": "embedding and recurrent layer run under no_grad",
        "optimiser_missing_parameters": "the optimiser has the head only",
        "exploding_rnn": "ReLU in place of tanh, recurrent weights 1.5 I, no clipping",
        "overfit": "80 names, 128 units, no dropout",
        "data_leak": "names begin with that of the script",
    },
)
