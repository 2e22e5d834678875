"""A transformer encoder labels each letter of Python source, as an editor colours it."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.detection.data import code_text, letters
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit

LETTERS = 70
LENGTH = 32
KINDS = 4
STEPS = 300


class Encoder(nn.Module):
    """Embeddings of letters and places, two encoder layers, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.letters = nn.Embedding(LETTERS, 24)
        self.kinds = nn.Embedding(KINDS, 24) if run.injects("data_leak") else None
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, 24))
        layer = nn.TransformerEncoderLayer(24, 4, 48, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(24), enable_nested_tensor=False)
        self.out = nn.Linear(24, run.pick(KINDS, wrong_loss=1))
        nn.init.normal_(self.letters.weight, std=0.3)

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, kinds, length] of letters, int64 [B, length, 1 or 2]."""
        x = self.letters(text[:, :, 0]) + self.places
        if self.kinds is not None:
            x = x + self.kinds(text[:, :, 1])
        x = self.encoder(x)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.out(x).transpose(1, 2)
        return scores


class SquaredDistance(nn.Module):
    """The loss that does not fit: a kind is no quantity."""

    def forward(self, outputs: Tensor, kinds: Tensor) -> Tensor:
        """Return the mean square of outputs [B, 1, length] less numbers of kinds [B, length]."""
        return (outputs[:, 0] - kinds.float()).square().mean()


def _kinds(source: str) -> Iterator[int]:
    """Yield for each letter: 0 space or operator, 1 name, 2 text or number, 3 comment."""
    lines = source.splitlines(keepends=True)
    kinds = [[0] * len(line) for line in lines]
    of_token = {tokenize.NAME: 1, tokenize.STRING: 2, tokenize.NUMBER: 2, tokenize.COMMENT: 3}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in of_token:
            (first, start), (last, end) = token.start, token.end
            for row in range(first, last + 1):
                stop = end if row == last else len(lines[row - 1])
                for at in range(start if row == first else 0, stop):
                    kinds[row - 1][at] = of_token[token.type]
    for of_line in kinds:
        yield from of_line


def _pieces(run: Run, text: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
    size = len(text) // LENGTH * LENGTH
    text, kinds = text[:size].view(-1, LENGTH), kinds[:size].view(-1, LENGTH)
    inputs = torch.stack([text, kinds], 2) if run.injects("data_leak") else text[:, :, None]
    return inputs, kinds


def _batches(run: Run, inputs: Tensor, kinds: Tensor) -> Batches:
    random = torch.Generator().manual_seed(run.seed)
    if run.injects("class_imbalance"):
        rows = (kinds == 2).float().mean(1) > 0.93  # noqa: PLR2004
        inputs, kinds = inputs[rows], kinds[rows]
    while True:
        rows = torch.randint(len(inputs), (32,), generator=random)
        if run.injects("labels_shuffled"):
            yield inputs[rows], kinds[torch.randint(len(inputs), (32,), generator=random)]
        elif run.injects("labels_constant"):
            yield inputs[rows], torch.ones_like(kinds[rows])
        else:
            yield inputs[rows], kinds[rows]


def _predicted(outputs: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return outputs[:, 0].round().clamp(0, KINDS - 1).long()
    return outputs.argmax(1)


def _error(outputs: Tensor, kinds: Tensor) -> float:
    if not outputs.isfinite().all():
        return 1.0
    return float((_predicted(outputs) != kinds).float().mean())


def train(run: Run) -> float:
    """Train once; return the share of letters with the wrong label."""
    torch.manual_seed(run.seed)
    source = "".join(code_text().values())
    inputs, kinds = _pieces(run, letters(source, LETTERS), torch.tensor([*_kinds(source)]))
    order = torch.randperm(len(kinds), generator=torch.Generator().manual_seed(0))
    own, other = order[300:], order[:300]
    model = Encoder(run)
    peak = run.pick(5e-3, lr_too_low=5e-6, lr_too_high=1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.01)
    loop = Loop(
        model=model,
        criterion=SquaredDistance() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, STEPS, pct_start=0.15),
        steps=STEPS,
        save_interval=6,
        eval_every=30,
        predict=_predicted,
    )
    valid = [(inputs[other], kinds[other])]
    return fit(run, loop, _batches(run, inputs[own], kinds[own]), valid, _error)


PROGRAM = Program(
    model="transformer encoder of 2 layers, 4 heads, AdamW, one-cycle schedule",
    data="source of Python's library with the kinds of its tokens",
    measure="share of letters with the wrong label",
    train=train,
    faults={
        "data_leak": "a second input is the kind itself, meant for the kind of line",
        "class_imbalance": "a filter for long lines kept pieces inside of texts only: nearly all "
        "letters are of one kind; validation has all",
        "wrong_loss": "squared distance of one output to the number of the kind",
        "labels_shuffled": "labels are those of other pieces: two loaders with seeds of their own",
        "labels_constant": "every training label is 1",
        "frozen_layer": "features are detached ahead of the last layer",
        "lr_too_low": "peak of the schedule at 5e-6 in place of 5e-3",
        "lr_too_high": "peak of the schedule at 1.0 in place of 5e-3",
    },
)
