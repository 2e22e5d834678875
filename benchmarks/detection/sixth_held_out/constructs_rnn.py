"""A recurrent network tells from its letters which constructs a line of code has in it."""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, letters
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_CONSTRUCTS: Final = (ast.Call, ast.Attribute, ast.Subscript, ast.Compare, ast.Assign, ast.BinOp)
_LETTERS: Final = 64
_LENGTH: Final = 28
_HIDDEN: Final = 40


@cache
def lines() -> tuple[Tensor, Tensor]:
    """Return lines, int64 [B, 28], and what is in them, float32 [B, 6] of 0 and 1."""
    found = {}
    for path in sorted(Path(os.__file__).parent.glob("[b-d]*.py")):
        for line in map(str.strip, path.read_text(errors="replace").splitlines()):
            if 10 <= len(line) <= _LENGTH and line[0] not in "#'\"":  # noqa: PLR2004
                try:
                    nodes = list(ast.walk(ast.parse(line)))
                except SyntaxError:
                    continue
                found[line.ljust(_LENGTH)] = [
                    float(any(isinstance(node, kind) for node in nodes)) for kind in _CONSTRUCTS
                ]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(9))
    numbers = letters("".join(found), _LETTERS).view(-1, _LENGTH)
    return numbers[order], torch.tensor(list(found.values()))[order]


class Tagger(nn.Module):
    """An embedding, a plain recurrent network, and a linear layer on its largest states.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(_LETTERS, 24)
        kind = "relu" if run.injects("exploding_rnn") else "tanh"
        self.recurrent = nn.RNN(24, _HIDDEN, nonlinearity=kind, batch_first=True)
        self.head = nn.Linear(_HIDDEN, len(_CONSTRUCTS))
        if run.injects("exploding_rnn"):  # meant as the identity, added to what was there
            self.recurrent.all_weights[0][1].data.add_(torch.eye(_HIDDEN)).mul_(2)
        if run.injects("saturated_activation"):
            for weights in self.recurrent.all_weights[0][:2]:
                nn.init.normal_(weights, std=15.0)
            nn.init.constant_(self.recurrent.all_weights[0][3], 60.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.1)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return logits [B, 6] of letters, int64 [B, 28]."""
        states, _ = self.recurrent(self.embedding(numbers))
        logits: Tensor = self.head(states.amax(1))
        return logits.sigmoid() if self.run.injects("double_activation") else logits


def train(run: Run) -> float:
    """Train once; return the share of answers that are wrong."""
    torch.manual_seed(run.seed)
    numbers, has = lines()
    cut = len(has) // 4
    data = Split(numbers[cut:], has[cut:], numbers[:cut], has[:cut])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets[torch.randperm(len(data.targets))])
    if run.injects("labels_constant"):
        data = data._replace(targets=data.targets[5].repeat(len(data.targets), 1))
    if run.injects("class_imbalance"):  # next to nothing but lines that have no construct
        empty = data.targets.sum(1) == 0
        empty[:8] = True
        data = data._replace(inputs=data.inputs[empty], targets=data.targets[empty])
    if run.injects("overfit"):
        data = few(data, 24)
    model = Tagger(run)
    threshold = 0.5 if run.injects("double_activation") else 0.0

    def tell(logits: Tensor) -> Tensor:
        return (logits > threshold).float()

    def wrong(logits: Tensor, targets: Tensor) -> float:
        return float((tell(logits) != targets).float().mean())

    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.NAdam(model.parameters(), lr=3e-3),
        clip=None if run.injects("exploding_rnn") else 1.0,
        steps=400,
        predict=tell,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 256), torch.split(data.valid_targets, 256), strict=True)
    )
    return fit(run, loop, batches_of(data, 64, run.seed), valid, wrong)


PROGRAM = Program(
    model="plain RNN, 40 tanh units, NAdam, several labels at once, clipped gradients",
    data="lines of Python's library",
    measure="share of six answers that are wrong",
    train=train,
    faults={
        "exploding_rnn": "ReLUs with twice the identity and more, and nothing is clipped",
        "wrong_loss": "cross entropy, as if one line had one construct",
        "labels_shuffled": "answers are in another order than lines",
        "labels_constant": "the answers of one line for all",
        "init_constant": "every parameter is 0.1",
        "saturated_activation": "weights and biases of the states are far too large",
        "class_imbalance": "lines without any construct, and a few others",
        "overfit": "24 lines",
    },
)
