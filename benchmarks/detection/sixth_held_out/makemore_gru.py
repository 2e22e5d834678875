"""A GRU makes up names of functions: the next letter, until the name ends."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, NextLetter, batches_of, fit, perplexity

_ALPHABET: Final = ".abcdefghijklmnopqrstuvwxyz_"
_LENGTH: Final = 18
_HIDDEN: Final = 48


@cache
def names() -> Tensor:
    """Return names between dots as numbers of letters, int64 [B, 19]."""
    found = set()
    for path in sorted(Path(os.__file__).parent.glob("[a-p]*.py")):
        for line in path.read_text(errors="replace").splitlines():
            word = line.strip().removeprefix("def ").split("(")[0].lower()
            if line.strip().startswith("def ") and 4 <= len(word) < _LENGTH:  # noqa: PLR2004
                found.add(word.strip("_"))
    rows = [f".{name}{'.' * _LENGTH}"[: _LENGTH + 1] for name in sorted(found)]
    kept = [row for row in rows if set(row) <= set(_ALPHABET)]
    numbers = torch.tensor([[_ALPHABET.index(letter) for letter in row] for row in kept])
    return numbers[torch.randperm(len(numbers), generator=torch.Generator().manual_seed(6))]


class Accumulator(nn.Module):
    """A cell that somebody wrote without a squashing function.

    Args:
        hidden: Numbers in and out.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.step = nn.Linear(2 * hidden, hidden)
        nn.init.xavier_normal_(self.step.weight, gain=2.0)

    def forward(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Return all states [B, length, hidden] and the last one."""
        state = torch.zeros_like(embedded[:, 0])
        states = []
        for inputs in embedded.unbind(1):
            state = state + self.step(torch.cat([state, inputs], 1))
            states.append(state)
        return torch.stack(states, 1), state


class Net(nn.Module):
    """An embedding, a GRU and a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(len(_ALPHABET), _HIDDEN)
        self.recurrent: nn.Module = nn.GRU(_HIDDEN, _HIDDEN, batch_first=True)
        if run.injects("exploding_rnn"):
            self.recurrent = Accumulator(_HIDDEN)
        self.head = nn.Linear(_HIDDEN, len(_ALPHABET))
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.zeros_(parameter)
        if run.injects("saturated_activation"):
            self.embedding.weight.data.mul_(60)
            for parameter in self.recurrent.parameters():
                nn.init.uniform_(parameter, -2.0, 2.0)

    def forward(self, letters: Tensor) -> Tensor:
        """Return scores [B, 18, 28] of letters, int64 [B, 18]."""
        states, _ = self.recurrent(self.embedding(letters))
        scores: Tensor = self.head(states)
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


def train(run: Run) -> float:
    """Train once; return the perplexity of the names that were held out."""
    torch.manual_seed(run.seed)
    rows = names()
    cut = len(rows) // 5
    known, new = rows[cut:], rows[:cut]
    data = Split(known[:, :-1], known[:, 1:], new[:, :-1], new[:, 1:])
    if run.injects("overfit"):
        data = data._replace(inputs=data.inputs[:24], targets=data.targets[:24])
    if run.injects("labels_constant"):  # read behind the end of the names
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("data_leak"):  # the slice that takes the last letter off was forgotten
        data = data._replace(inputs=known[:, 1:], valid_inputs=new[:, 1:])
    model = Net(run)
    trained = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=NextLetter(),
        optimizer=torch.optim.Adam(trained.parameters(), lr=5e-3),
        clip=None if run.injects("exploding_rnn") else 1.0,
        steps=300,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 400), torch.split(data.valid_targets, 400), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, perplexity)


PROGRAM = Program(
    model="GRU, 48 units, Adam, clipped gradients, the loss by a function",
    data="names of functions in Python's library",
    measure="perplexity of a letter",
    train=train,
    faults={
        "exploding_rnn": "a cell without tanh that adds to its state, and nothing is clipped",
        "init_constant": "all parameters are zero",
        "saturated_activation": "embeddings and recurrent weights are far too wide",
        "optimiser_missing_parameters": "only the last layer's parameters were given",
        "double_activation": "softmax ahead of cross entropy",
        "labels_constant": "targets are dots only",
        "data_leak": "inputs are the targets: the slice is the same",
        "overfit": "24 names",
    },
)
