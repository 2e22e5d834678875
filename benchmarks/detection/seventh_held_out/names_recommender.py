"""Embeddings of source files and of names recommend to a file which name it uses."""

from __future__ import annotations

import importlib.util
import os
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

_NAMES: Final = 300
_SHORTEST: Final = 3000
_COMMON: Final = 40
"""So many names nearly every file uses; they are left out."""
_OFFERED: Final = 5
"""One name that the file uses, and four that it does not."""
_WORD: Final = re.compile(r"\b[a-z_]{4,}\b")


class Embeddings(nn.Module):
    """A vector for each file and each name, and how frequent a name is.

    Args:
        files: Number of files.
        run: What is injected.
    """

    def __init__(self, files: int, run: Run) -> None:
        super().__init__()
        self.run = run
        width = run.pick(12, overfit=48)
        self.file, self.name = nn.Embedding(files, width), nn.Embedding(_NAMES, width)
        self.frequent = nn.Embedding(_NAMES, 1)
        size = run.pick(0.1, init_too_large=3.0)
        for table in (self.file, self.name):
            nn.init.normal_(table.weight, std=size)
        nn.init.zeros_(self.frequent.weight)
        if run.injects("init_constant"):
            filled_([self.file, self.name], 0.0)

    def forward(self, rows: Tensor) -> Tensor:
        """Return scores [B, offered] of files and names offered to them, int64 [B, 1 + offered]."""
        file, names = self.file(rows[:, :1]), self.name(rows[:, 1:])
        if self.run.injects("frozen_layer"):
            file, names = file.detach(), names.detach()
        scores: Tensor = (file * names).sum(-1) + self.frequent(rows[:, 1:]).squeeze(-1)
        return scores


@cache
def offers() -> tuple[Split, int]:
    """Return files with names offered to them, which one they use, and the number of files.

    Inputs are int64 [B, 1 + offered], targets the place of the right one, int64 [B].
    """
    folders = [Path(os.__file__).parent]
    for library in ("matplotlib", "sklearn/linear_model", "sklearn/ensemble", "numpy/lib"):
        name, *below = library.split("/")
        spec = importlib.util.find_spec(name)
        folders.append(Path((spec and spec.origin) or "").parent.joinpath(*below))
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    texts = [path.read_text("utf-8", errors="ignore") for path in paths]
    words = [set(_WORD.findall(text)) for text in texts if len(text) > _SHORTEST]
    count = Counter(word for used in words for word in used)
    frequent = [word for word, _ in count.most_common(_COMMON + _NAMES)][_COMMON:]
    uses = np.array([[word in used for word in frequent] for used in words])
    random = np.random.default_rng(0)
    files, names = uses.nonzero()
    inputs, targets = [], []
    for file, right in zip(files, names, strict=True):
        others = random.choice((~uses[file]).nonzero()[0], _OFFERED - 1, replace=False)
        place = random.integers(_OFFERED)
        inputs.append([file, *np.insert(others, place, right)])
        targets.append(place)
    order = random.permutation(len(inputs))
    held_out = len(order) // 5
    table, answers = torch.tensor(np.array(inputs)[order]), torch.tensor(np.array(targets)[order])
    split = Split(table[held_out:], answers[held_out:], table[:held_out], answers[:held_out])
    return split, len(words)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data, files = offers()
    if run.injects("labels_shuffled"):
        # The right one is put first and its place kept, then the offered are mixed again.
        random = torch.Generator().manual_seed(run.seed)
        mixed = torch.rand(data.inputs[:, 1:].shape, generator=random).argsort(1)
        names = data.inputs[:, 1:].gather(1, mixed)
        data = data._replace(inputs=torch.cat([data.inputs[:, :1], names], 1))
    if run.injects("overfit"):
        data = data._replace(inputs=data.inputs[:500], targets=data.targets[:500])
    model = Embeddings(files, run)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [*model.file.parameters()]
    rate = run.pick(2e-2, lr_too_low=2e-5)
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(trained, lr=rate, weight_decay=run.pick(0.1, overfit=0.0)),
        steps=300,
        eval_every=30,
        predict=classes,
    )
    valid = list(zip(data.valid_inputs.chunk(5), data.valid_targets.chunk(5), strict=True))
    return fit(run, loop, batches_of(data, 128, run.seed), valid, error_rate)


PROGRAM = Program(
    model="matrix factorisation, embeddings, sampled softmax, AdamW",
    data="names that source files of Python and of three libraries use",
    measure="error rate among five names offered",
    train=train,
    faults={
        "lr_too_low": "AdamW with learning rate 2e-5 where 0.02 is right: a thousand times",
        "init_too_large": "vectors start with standard deviation 3 where 0.1 is right: scores of"
        " some 30",
        "init_constant": "all vectors start at 0: neither side gets a gradient through the other",
        "labels_shuffled": "offered names were mixed again after the right one's place was noted",
        "frozen_layer": "both vectors are detached ahead of their product: only how frequent a name"
        " is gets learned",
        "overfit": "500 rows for four times as wide vectors, no weight decay",
        "optimiser_missing_parameters": "the optimiser was given the files' vectors only",
    },
)
