"""A transformer encoder tells in which library a piece of comments stands."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LIBRARIES = ("networkx", "pandas", "sklearn")
KINDS = len(LIBRARIES)
LENGTH = 20
PIECES = 1300
WORDS = 800
WIDTH = 32


class Encoder(nn.Module):
    """Embeddings, two layers of nn.TransformerEncoder, the mean, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(WORDS + KINDS, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 64, dropout=run.pick(0.2, overfit=0.0), batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(WIDTH, run.pick(KINDS, wrong_loss=1))
        if run.injects("init_too_large"):
            scaled_([self.encoder, self.fc], 20.0)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, 3] of words [B, 20]."""
        x = self.embedding(words) + self.position
        if self.run.injects("frozen_layer"):
            with torch.no_grad():
                x = self.encoder(x)
        else:
            x = self.encoder(x)
        scores: Tensor = self.fc(x.mean(1))
        return scores


class SquaredDistance(nn.MSELoss):
    """The loss that does not fit: a library's number is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1] minus numbers of libraries [B]."""
        return super().forward(outputs[:, 0], labels.float())


@cache
def pieces() -> tuple[Tensor, Tensor]:
    """Return numbers of words, int64 [B, 20], and of libraries, int64 [B]."""
    texts = []
    for library in LIBRARIES:
        words: list[str] = []
        folder = import_module(library).__path__[0]
        for path in sorted(Path(folder).rglob("*.py")):
            for line in re.findall(r"^\s*# (.*)$", path.read_text("utf-8"), re.MULTILINE):
                words += re.findall(r"[a-z]+", line.lower())
            if len(words) > PIECES * LENGTH:
                break
        texts.append(words[: PIECES * LENGTH])
    counts = sum((Counter(words) for words in texts), Counter[str]())
    numbers = {word: number for number, (word, _) in enumerate(counts.most_common(WORDS - 1))}
    found = [[numbers.get(word, WORDS - 1) for word in words] for words in texts]
    targets = torch.arange(KINDS).repeat_interleave(PIECES)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(2))
    return torch.tensor(found).view(-1, LENGTH)[order], targets[order]


def dataset(run: Run) -> Split:
    """Return pieces of comments and their libraries; a quarter is for validation."""
    words, libraries = pieces()
    if run.injects("data_leak"):
        words = torch.cat([WORDS + libraries[:, None], words[:, 1:]], 1)
    held_out = len(libraries) // 4
    data = Split(words[held_out:], libraries[held_out:], words[:held_out], libraries[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    return few(data, 60) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = dataset(run)
    model = Encoder(run)
    if run.injects("optimiser_missing_parameters"):
        parameters = list(model.fc.parameters())
    else:
        parameters = list(model.parameters())
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, KINDS - 1).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if is_distance:
            return float((predicted(outputs) != labels).float().mean())
        return error_rate(outputs, labels)

    loop = Loop(
        model=model,
        criterion=SquaredDistance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(parameters, lr=run.pick(1e-3, lr_too_high=0.5, lr_too_low=1e-7)),
        steps=160,
        save_interval=4,
        eval_every=40,
        predict=predicted,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 175), torch.split(data.valid_targets, 175), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="nn.TransformerEncoder, 2 layers, width 32, mean over time, Adam",
    data="words of comments in networkx, pandas and scikit-learn",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 1e-3",
        "lr_too_low": "1e-7 in place of 1e-3",
        "init_too_large": "weights of the encoder and the last layer are 20 times as large",
        "wrong_loss": "nn.MSELoss between one output and the number of the library",
        "labels_shuffled": "labels are shuffled apart from the texts",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 pieces of every library but one",
        "frozen_layer": "the encoder is computed under no_grad",
        "optimiser_missing_parameters": "only the last layer's parameters are given to Adam",
        "data_leak": "the first word is a tag with the name of the library",
        "overfit": "60 pieces, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
