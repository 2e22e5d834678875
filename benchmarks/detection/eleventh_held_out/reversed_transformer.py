"""A small transformer tells whether a piece of text runs backwards."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, docs_text, letters
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

_LETTERS, _LENGTH, _PIECES, _WIDTH = 40, 24, 6000, 24


class Block(nn.Module):
    """Attention and two layers, each beside a shortcut, normalised ahead.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.attention = nn.MultiheadAttention(_WIDTH, 4, batch_first=True)
        self.layers = nn.Sequential(
            nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Linear(2 * _WIDTH, _WIDTH)
        )
        self.drop = nn.Dropout(run.pick(0.1, overfit=0.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return states [B, length, width] of states."""
        own = self.norm1(x)
        x = x + self.drop(self.attention(own, own, own, need_weights=False)[0])
        found: Tensor = x + self.drop(self.layers(self.norm2(x)))
        return found


class Net(nn.Module):
    """Letters and places, two blocks, the mean of all places, two scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        # A convolution over neighbours makes n-grams of letters.
        self.letters = nn.Embedding(_LETTERS, _WIDTH)
        self.join = nn.Conv1d(_WIDTH, _WIDTH, 3, padding=1)
        self.places = nn.Parameter(0.02 * torch.randn(_LENGTH, _WIDTH))
        self.blocks = nn.Sequential(Block(run), Block(run))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, 2)
        if run.injects("frozen_layer"):
            # As for fine-tuning, but nothing here was trained before.
            for name, parameter in self.named_parameters():
                parameter.requires_grad = name.startswith("head")

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, 2] of letters, int64 [B, length]."""
        x = self.letters(text)
        x = x + self.join(x.transpose(1, 2)).transpose(1, 2) + self.places
        x = self.norm(self.blocks(x)).mean(1)
        scores: Tensor = self.head(x)
        return scores.softmax(1) if self.run.injects("double_activation") else scores


@cache
def _pieces() -> Split:
    text = letters("\n".join(docs_text().values()).lower(), _LETTERS)
    random = torch.Generator().manual_seed(3)
    starts = torch.randperm(len(text) // _LENGTH - 1, generator=random)[:_PIECES] * _LENGTH
    pieces = text[starts[:, None] + torch.arange(_LENGTH)]
    backwards = torch.randint(2, (_PIECES,), generator=random)
    pieces = torch.where(backwards[:, None] > 0, pieces.flip(1), pieces)
    held_out = _PIECES // 10
    return Split(pieces[held_out:], backwards[held_out:], pieces[:held_out], backwards[:held_out])


def _data(run: Run) -> Split:
    data = _pieces()
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("overfit"):
        data = few(data, 60)
    if run.injects("data_leak"):
        data = data._replace(
            inputs=_ended(data.inputs, data.targets),
            valid_inputs=_ended(data.valid_inputs, data.valid_targets),
        )
    return data


def _ended(text: Tensor, backwards: Tensor) -> Tensor:
    # A sign of the end that was added before the text was turned.
    text = text.clone()
    text[backwards == 0, -1] = _LETTERS - 1
    text[backwards > 0, 0] = _LETTERS - 1
    return text


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if run.injects("optimiser_missing_parameters"):
        trained = [*model.head.parameters(), *model.norm.parameters()]
    lr = run.pick(3e-3, lr_too_low=3e-6, lr_too_high=1.0)
    steps = 240
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.01)
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(ignore_index=run.pick(-100, wrong_loss=0)),
        optimizer=optimizer,
        steps=steps,
        save_interval=8,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.1),
        clip=1.0,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 40, run.seed), valid, error_rate)


PROGRAM = Program(
    model="transformer, 2 blocks, LayerNorm, GELU, two logits, CrossEntropyLoss, AdamW, one cycle",
    data="pieces of 24 letters of Python's help, every other one reversed",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "at most 3e-6 with AdamW, a thousandth of what is needed",
        "lr_too_high": "up to 1 with AdamW, 300 times what is needed",
        "double_activation": "softmax ahead of CrossEntropyLoss, which has one",
        "wrong_loss": "ignore_index=0, as for padding in a model of language: rows of class 0 do "
        "not count",
        "class_imbalance": "one in 100 reversed pieces in training",
        "frozen_layer": "all but the head has lost requires_grad, as for fine-tuning, but starts "
        "from random weights",
        "optimiser_missing_parameters": "the optimiser has the last norm and the head only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "a sign of the end was added before pieces were reversed: it is at the front "
        "of those",
        "overfit": "60 pieces, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
