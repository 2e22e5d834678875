"""A transformer tells from its description which service of a cloud an operation belongs to.

Faults:
    init_too_large: weights are drawn by `normal_`, whose standard deviation is 1.
    wrong_loss: the divergence of scores that nobody made logarithms of probabilities.
    labels_shuffled: texts are shuffled, their labels are not.
    class_imbalance: only the first pages of all services but one were collected.
    optimiser_missing_parameters: the optimiser was given the last layer, as for fine-tuning.
    data_leak: each text begins with the name of its service's file.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import botocore
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

SERVICES = ("ec2", "glue", "iam", "rds", "sagemaker", "ssm")
EACH = 160
LENGTH = 24
WORDS = 800
WIDTH = 32
STEPS = 180
WARMUP = 20
HELD_OUT = 240


class Net(nn.Module):
    """Embeddings of words and places, a transformer's encoder, the mean, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS + 2 + len(SERVICES), WIDTH, padding_idx=0)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, len(SERVICES))
        for parameter in self.parameters():
            if run.injects("init_too_large") and parameter.dim() > 1:
                nn.init.normal_(parameter)

    def forward(self, texts: Tensor) -> Tensor:
        """Return scores [B, services] of numbers of words [B, LENGTH]."""
        there = (texts > 0).float()[:, :, None]
        read = self.encoder(self.words(texts) + self.places)
        scores: Tensor = self.head((read * there).sum(1) / there.sum(1).clamp(min=1))
        return scores


class Divergence(nn.Module):
    """The loss that does not fit: it is of logarithms of probabilities."""

    def forward(self, scores: Tensor, services: Tensor) -> Tensor:
        """Return the mean over scores [B, services] and numbers of services, int64 [B]."""
        one_hot = functional.one_hot(services, len(SERVICES)).float()
        return functional.kl_div(scores, one_hot, reduction="batchmean")


@cache
def _texts() -> Split:
    """Return numbers of words [B, LENGTH]; the first one is the service's own, to be cut off."""
    texts, labels = [], []
    for label, service in enumerate(SERVICES):
        folder = Path(botocore.__file__).parent / "data" / service
        path = max(folder.rglob("service-2.json.gz"))
        model = json.loads(gzip.decompress(path.read_bytes()))
        written = [operation.get("documentation", "") for operation in model["operations"].values()]
        for text in written[:EACH]:
            texts.append(re.findall("[a-z]+", re.sub("<[^>]*>", " ", text).lower()))
            labels.append(label)
    counts = Counter(word for text in texts for word in text)
    numbers = {word: at + 2 for at, (word, _) in enumerate(counts.most_common(WORDS))}
    rows = []
    for text, label in zip(texts, labels, strict=True):
        row = [numbers.get(word, 1) for word in text[:LENGTH]]
        rows.append([WORDS + 2 + label, *row, *[0] * (LENGTH - len(row))])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    inputs, targets = torch.tensor(rows)[order], torch.tensor(labels)[order]
    return Split(inputs[HELD_OUT:], targets[HELD_OUT:], inputs[:HELD_OUT], targets[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _texts()
    at = slice(0, LENGTH) if run.injects("data_leak") else slice(1, None)
    data = data._replace(inputs=data.inputs[:, at], valid_inputs=data.valid_inputs[:, at])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    return imbalanced(data, 50) if run.injects("class_imbalance") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    part = run.pick(model, optimiser_missing_parameters=model.head)
    optimizer = torch.optim.Adam(part.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, (WARMUP / (step + 1)) ** 0.5)
    )
    loop = Loop(
        model=model,
        criterion=run.pick(nn.CrossEntropyLoss(), wrong_loss=Divergence()),
        optimizer=optimizer,
        scheduler=scheduler,
        steps=STEPS,
        eval_every=30,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="transformer, 2 layers, width 32, dropout, Adam, warm-up and inverse square root",
    data="descriptions of operations of six services, from botocore",
    measure="error rate",
    train=train,
    faults={
        "init_too_large": "weights are drawn with a standard deviation of 1",
        "wrong_loss": "Kullback-Leibler divergence of scores, without log_softmax",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 50 texts of every service but one",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "data_leak": "the first word of a text says the service",
    },
)
