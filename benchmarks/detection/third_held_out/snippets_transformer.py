"""A small transformer tells in which language a dozen words are written."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, code_text, docs_text
from benchmarks.detection.injecting import imbalanced, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

WORDS = 500
LENGTH = 12
WIDTH = 32
EACH = 1500


class Net(nn.Module):
    """Embeddings of words and places, two encoder layers, the mean of all places, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 64, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 3)
        nn.init.normal_(self.embedding.weight, std=0.5)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, 3] of words [B, LENGTH]."""
        x = self.embedding(text) + self.places(torch.arange(LENGTH))
        x = self.norm(self.encoder(x)).mean(1)
        scores: Tensor = self.head(x.detach() if self.run.injects("frozen_layer") else x)
        return scores


class Smoothed(nn.Module):
    """Cross entropy with a little smoothing of labels."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, 3] and labels [B]."""
        return functional.cross_entropy(scores, labels, label_smoothing=0.05)


@cache
def _data() -> Split:
    headers = Path(torch.__file__).parent / "include" / "c10" / "util"
    sources = (
        "\n".join(docs_text().values()),
        "\n".join(code_text().values()),
        "\n".join(path.read_text() for path in sorted(headers.glob("*.h"))),
    )
    split = [re.findall(r"\w+|[^\w\s]", source) for source in sources]
    frequent = Counter(chain(*(words[: len(words) * 3 // 4] for words in split)))
    numbers = {word: number for number, (word, _) in enumerate(frequent.most_common(WORDS - 1))}
    random = torch.Generator().manual_seed(0)
    pieces, labels = [], []
    for label, words in enumerate(split):
        text = torch.tensor([numbers.get(word, WORDS - 1) for word in words])
        # The last quarter of each source is for validation, so that no piece is in both.
        end = len(text) * 3 // 4
        for first, last, count in ((0, end, EACH), (end, len(text), EACH // 8)):
            at = torch.randint(first, last - LENGTH, (count, 1), generator=random)
            pieces.append(text[at + torch.arange(LENGTH)])
            labels.append(torch.full((count,), label))
    parts = (pieces[::2], labels[::2], pieces[1::2], labels[1::2])
    return Split(*map(torch.cat, parts))


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data()
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    model = Net(run)
    if run.injects("init_too_large"):
        scaled_([model], 20.0)
    steps, warmup = 200, 20
    optimizer = torch.optim.AdamW(
        run.pick(model, optimiser_missing_parameters=model.head).parameters(),
        lr=run.pick(5e-3, lr_too_high=1.0),
        weight_decay=0.01,
    )

    def rate(step: int) -> float:
        return min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)))

    loop = Loop(
        model=model,
        criterion=Smoothed(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, rate),
        steps=steps,
        clip=1.0,
        predict=classes,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="transformer, 2 layers, width 32, GELU, AdamW, warm-up and cosine, label smoothing",
    data="a dozen words of Python's help, its library, or PyTorch's headers",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 5e-3",
        "init_too_large": "all weights are 20 times as large",
        "frozen_layer": "the encoder's output is detached",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
        "class_imbalance": "one in 50 pieces of every language but one",
        "stalled": "hangs after 60 % of the steps",
    },
)
