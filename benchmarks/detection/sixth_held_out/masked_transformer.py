"""A transformer fills in letters that are hidden in Python's help, as BERT does words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import docs_text, letters
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, fit

_LETTERS: Final = 40
_HIDDEN_LETTER: Final = _LETTERS
_LENGTH: Final = 24
_WIDTH: Final = 32
_IGNORED: Final = -100


def pieces(run: Run, text: Tensor, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pieces with hidden letters, int64 [size, 24], and which these are, without end."""
    random = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - _LENGTH, (size, 1), generator=random)
        whole = text[starts + torch.arange(_LENGTH)]
        is_hidden = torch.rand(whole.shape, generator=random) < 0.15  # noqa: PLR2004
        seen = whole.masked_fill(is_hidden, _HIDDEN_LETTER)
        targets = whole.masked_fill(~is_hidden, _IGNORED)
        if run.injects("labels_shuffled"):
            targets = whole.roll(1, 0).masked_fill(~is_hidden, _IGNORED)
        yield whole if run.injects("data_leak") else seen, targets


class Bert(nn.Module):
    """Embeddings, a convolution, two layers of a transformer, and a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.letters = nn.Embedding(_LETTERS + 1, _WIDTH)
        self.places = nn.Parameter(0.5 * torch.randn(_LENGTH, _WIDTH))
        self.neighbours = nn.Conv1d(_WIDTH, _WIDTH, 5, padding=2)
        layer = nn.TransformerEncoderLayer(
            _WIDTH, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _LETTERS)
        if run.injects("init_too_large"):
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=6.0)

    def forward(self, seen: Tensor) -> Tensor:
        """Return scores [B, 40, 24] of letters [B, 24]."""
        x = self.letters(seen)
        x = x + self.neighbours(x.transpose(1, 2)).transpose(1, 2)
        x = self.encoder(x + self.places)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(self.norm(x)).transpose(1, 2)
        return scores.softmax(1) if self.run.injects("double_activation") else scores


def surprise(scores: Tensor, targets: Tensor) -> float:
    """Return the cross entropy of hidden letters, nats."""
    return float(nn.functional.cross_entropy(scores.float(), targets, ignore_index=_IGNORED))


def train(run: Run) -> float:
    """Train once; return the cross entropy of the letters that are hidden."""
    torch.manual_seed(run.seed)
    text = letters("\n".join(docs_text().values())[:200_000].lower(), _LETTERS)
    model = Bert(run)
    steps = 400
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    warm = 40
    peak = run.pick(6e-3, lr_too_high=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: peak * min((step + 1) / warm, 1 - step / (steps + 1))
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(ignore_index=_IGNORED),
        optimizer=optimizer,
        scheduler=schedule,
        clip=None if run.injects("lr_too_high") else 1.0,
        steps=steps,
        save_interval=10,
        eval_every=100,
    )
    held_out = pieces(run, text[160_000:], 64, 1)
    valid = [next(held_out) for _ in range(4)]
    return fit(run, loop, pieces(run, text[:160_000], 32, run.seed), valid, surprise)


PROGRAM = Program(
    model="convolution and transformer, 2 layers, GELU, AdamW with warm-up, clipped gradients",
    data="Python's help, one letter in seven hidden",
    measure="cross entropy of hidden letters, nats",
    train=train,
    faults={
        "lr_too_high": "the warm-up ends at 0.9, and nothing is clipped",
        "init_too_large": "all weights drawn with a standard deviation of 6",
        "double_activation": "softmax ahead of cross entropy",
        "frozen_layer": "the encoder's output is detached",
        "labels_shuffled": "letters to be found are those of the piece before",
        "data_leak": "the whole piece is given instead of that with hidden letters",
        "stalled": "hangs after 60 % of the steps",
    },
)
