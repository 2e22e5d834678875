"""A gated recurrent cell, written by hand, foretells the next instruction of Python's bytecode.

Faults:
    lr_too_high: 1 in place of 5e-3.
    lr_too_low: 1e-6, copied from a script that fine-tunes.
    double_activation: the model returns probabilities, and the loss has a softmax.
    init_constant: an own function for starting weights sets them all to 0.
    frozen_layer: states are detached at each step, not only from one piece to the next.
    optimiser_missing_parameters: the optimiser was given the last layer only.
    exploding_rnn: the cell adds what is new to the old state, and squashes nothing.
"""

from __future__ import annotations

import difflib
import dis
import typing
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import windows
from benchmarks.detection.injecting import filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, NextLetter, fit, perplexity, text_batches

KINDS = 64
UNITS = 64
LENGTH = 16
HELD_OUT = 4000


class Cell(nn.Module):
    """A state that forgets as much as it learns.

    Args:
        explodes: Whether it forgets nothing, and is not squashed.
    """

    def __init__(self, *, explodes: bool) -> None:
        super().__init__()
        self.explodes = explodes
        self.gate = nn.Linear(2 * UNITS, UNITS)
        self.new = nn.Linear(2 * UNITS, UNITS)

    def forward(self, seen: Tensor, state: Tensor) -> Tensor:
        """Return the next state [B, UNITS] behind what is seen [B, UNITS]."""
        both = torch.cat([seen, state], 1)
        new: Tensor = self.new(both)
        if self.explodes:
            return state + state * new + new
        gate = self.gate(both).sigmoid()
        following: Tensor = gate * new.tanh() + (1 - gate) * state
        return following


class Net(nn.Module):
    """An embedding, the cell, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(KINDS, UNITS)
        self.cell = Cell(explodes=run.injects("exploding_rnn"))
        self.head = nn.Linear(UNITS, KINDS)
        if run.injects("init_constant"):
            filled_([self], 0.0)

    def forward(self, instructions: Tensor) -> Tensor:
        """Return scores [B, LENGTH, KINDS] of instructions [B, LENGTH]."""
        state = torch.zeros(len(instructions), UNITS)
        states = []
        for seen in self.embedding(instructions).unbind(1):
            state = self.cell(seen, state)
            state = state.detach() if self.run.injects("frozen_layer") else state
            states.append(state)
        scores: Tensor = self.head(torch.stack(states, 1))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


def _names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        yield instruction.opname
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _instructions() -> Tensor:
    names: list[str] = []
    for module in (typing, difflib, zipfile, dis):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        names += _names(compile(source, str(module.__file__), "exec"))
    kinds, numbers, counts = np.unique(names, return_inverse=True, return_counts=True)
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(kinds))
    return torch.tensor(rank[numbers].clip(max=KINDS - 1))


def train(run: Run) -> float:
    """Train once; return the perplexity of an instruction."""
    torch.manual_seed(run.seed)
    text = _instructions()
    end = len(text) - HELD_OUT
    model = Net(run)
    part = run.pick(model, optimiser_missing_parameters=model.head)
    loop = Loop(
        model=model,
        criterion=NextLetter(),
        optimizer=torch.optim.Adam(
            part.parameters(), lr=run.pick(5e-3, lr_too_high=1.0, lr_too_low=1e-6)
        ),
        steps=240,
        save_interval=4,
        eval_every=48,
        clip=None if run.injects("exploding_rnn") else 1.0,
        is_functional=True,
    )
    valid = [windows(text, torch.arange(end, len(text) - LENGTH - 1, LENGTH), LENGTH)]
    return fit(run, loop, text_batches(text[:end], 32, LENGTH, run.seed), valid, perplexity)


PROGRAM = Program(
    model="gated recurrent cell by hand, 64 units, embedding, Adam, clipped gradients",
    data="instructions of the bytecode of four modules of Python's library",
    measure="perplexity",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "lr_too_low": "1e-6 in place of 5e-3",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_constant": "all parameters are 0",
        "frozen_layer": "the state is detached at each step, also ahead of the last layer",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "exploding_rnn": "states are added up, without a gate or tanh, and nothing is clipped",
    },
)
