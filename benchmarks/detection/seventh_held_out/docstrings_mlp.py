"""A network tells from a docstring's words which library it belongs to."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

_FOLDERS: Final = {
    "scipy": ("stats", "optimize", "signal"),
    "numpy": ("lib", "linalg", "ma", "polynomial"),
    "sklearn": ("linear_model", "ensemble", "metrics", "cluster"),
    "torch": ("nn/modules", "optim", "distributions"),
    "matplotlib": (".",),
}
_WORDS: Final = 300
_SHORTEST, _LETTERS = 200, 500


class Net(nn.Module):
    """Two hidden layers with batch normalisation.

    Args:
        columns: Number of inputs.
        dropout: Share of what is left out.
        run: What is injected.
    """

    def __init__(self, columns: int, dropout: float, run: Run) -> None:
        super().__init__()
        self.run = run
        self.fc1, self.bn1 = nn.Linear(columns, 48), nn.BatchNorm1d(48)
        self.fc2, self.bn2 = nn.Linear(48, 24), nn.BatchNorm1d(24)
        self.fc3 = nn.Linear(24, len(_FOLDERS))
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        if run.injects("dead_relu"):
            nn.init.constant_(self.bn2.bias, -6.0)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, libraries] of words [B, columns]."""
        x = self.dropout(self.relu1(self.bn1(self.fc1(words))))
        scores: Tensor = self.fc3(self.relu2(self.bn2(self.fc2(x))))
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


@cache
def docstrings() -> Split:
    """Return TF-IDF of docstrings' beginnings, float32 [B, words], and libraries, int64 [B]."""
    texts, labels = [], []
    for label, (name, folders) in enumerate(_FOLDERS.items()):
        spec = importlib.util.find_spec(name)
        root = Path((spec and spec.origin) or "").parent
        found = []
        for folder in folders:
            for path in sorted((root / folder).glob("*.py")):
                found += re.findall(r'"""(.*?)"""', path.read_text("utf-8"), re.DOTALL)
        found = [text[:_LETTERS] for text in found if len(text) > _SHORTEST][:700]
        texts += found
        labels += [label] * len(found)
    order = np.random.default_rng(0).permutation(len(texts))
    texts, targets = [texts[row] for row in order], torch.tensor(labels)[order]
    held_out = len(texts) // 4
    words = TfidfVectorizer(max_features=_WORDS, sublinear_tf=True)
    train = words.fit_transform(texts[held_out:]).toarray()
    valid = words.transform(texts[:held_out]).toarray()
    # Rows of TF-IDF have length 1; times the root of their number, columns have size 1.
    scale = _WORDS**0.5
    return Split(
        torch.tensor(scale * train, dtype=torch.float32),
        targets[held_out:],
        torch.tensor(scale * valid, dtype=torch.float32),
        targets[:held_out],
    )


def with_library(split: Split) -> Split:
    """Return data with one column per library, one-hot, beside the words."""

    def beside(inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.cat([inputs, 3.0 * nn.functional.one_hot(targets, len(_FOLDERS))], 1)

    return split._replace(
        inputs=beside(split.inputs, split.targets),
        valid_inputs=beside(split.valid_inputs, split.valid_targets),
    )


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = docstrings()
    if run.injects("data_leak"):
        data = with_library(data)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    if run.injects("overfit"):
        data = few(data, 48)
    model = Net(data.inputs.shape[1], run.pick(0.3, overfit=0.0), run)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [one for layer in (model.fc2, model.bn2, model.fc3) for one in layer.parameters()]
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(trained, lr=run.pick(8e-3, lr_too_high=4.0), momentum=0.9),
        steps=run.pick(180, overfit=400),
        save_interval=4,
        eval_every=30,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP, 2 hidden layers, BatchNorm, ReLU, dropout, SGD with momentum",
    data="TF-IDF of docstrings of five installed libraries",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "SGD with learning rate 4 where 0.008 is right: 500 times",
        "optimiser_missing_parameters": "the optimiser was given the last two layers' parameters,"
        " not those of the first: it and its BatchNorm stay as they were drawn",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "double_activation": "softmax in the model, and again in nn.CrossEntropyLoss",
        "dead_relu": "beta of the second BatchNorm starts at -6: after normalisation hardly a unit"
        " of that layer is ever positive",
        "labels_shuffled": "the training labels were permuted, the docstrings not",
        "class_imbalance": "one in 60 training docstrings of every library but one; validation"
        " has all five alike",
        "overfit": "48 docstrings for 16,000 weights, no dropout, 400 epochs",
        "data_leak": "the libraries' numbers stay in the table, one-hot, beside the words",
    },
)
