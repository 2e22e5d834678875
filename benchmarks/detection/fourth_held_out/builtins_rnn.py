"""A recurrent network tells from its letters which language a built-in name is of.

Faults:
    lr_too_high: 1 in place of 2e-3.
    no_activation: the log_softmax ahead of NLLLoss was forgotten.
    init_constant: all parameters are set to 0.
    saturated_activation: recurrent weights are drawn by `normal_`, with a deviation of 3.
    labels_constant: the language is read off the wrong column, and is the same everywhere.
    class_imbalance: nearly all training rows come from the first of five files.
    exploding_rnn: ReLU in place of tanh, recurrent weights drawn by `normal_`, no clipping.
    fp16_overflow: float16 by hand, with a fixed loss scale, and nobody looks at gradients.
"""

from __future__ import annotations

from functools import cache
from itertools import chain

import torch
from pygments.lexers import (
    _asy_builtins,
    _cocoa_builtins,
    _csound_builtins,
    _php_builtins,
    _scheme_builtins,
)
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import filled_, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!?*<>"
LENGTH = 14
EACH = 1000
HELD_OUT = 800


class Net(nn.Module):
    """Embeddings of letters, a recurrent layer, a linear layer on its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(len(LETTERS) + 2, 16, padding_idx=0)
        self.rnn = nn.RNN(
            16, 48, batch_first=True, nonlinearity=run.pick("tanh", exploding_rnn="relu")
        )
        self.head = nn.Linear(48, 5)
        for name, parameter in self.rnn.named_parameters():
            if run.injects("exploding_rnn") and name.startswith("weight_hh"):
                nn.init.normal_(parameter)
            if run.injects("saturated_activation") and name.startswith("weight"):
                nn.init.normal_(parameter, std=3.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)

    def forward(self, names: Tensor) -> Tensor:
        """Return logarithms of probabilities [B, 5] of names [B, LENGTH]."""
        states, _ = self.rnn(self.embedding(names))
        scores: Tensor = self.head(states[:, -1])
        return scores if self.run.injects("no_activation") else functional.log_softmax(scores, 1)


@cache
def _names() -> Split:
    languages = (
        set(chain(*_php_builtins.MODULES.values())),
        _cocoa_builtins.COCOA_INTERFACES,
        _csound_builtins.OPCODES,
        _scheme_builtins.scheme_builtins,
        _asy_builtins.ASYFUNCNAME,
    )
    random = torch.Generator().manual_seed(0)
    inputs, targets = [], []
    for label, language in enumerate(languages):
        names = sorted(language)
        for at in torch.randperm(len(names), generator=random)[:EACH].tolist():
            letters = [LETTERS.find(letter) + 2 for letter in names[at][:LENGTH]]
            inputs.append([0] * (LENGTH - len(letters)) + letters)
            targets.append(label)
    order = torch.randperm(len(inputs), generator=random)
    rows, labels = torch.tensor(inputs)[order], torch.tensor(targets)[order]
    return Split(rows[HELD_OUT:], labels[HELD_OUT:], rows[:HELD_OUT], labels[:HELD_OUT])


def _data(run: Run) -> Split:
    data = _names()
    if run.injects("labels_constant"):
        return data._replace(
            targets=torch.zeros_like(data.targets),
            valid_targets=torch.zeros_like(data.valid_targets),
        )
    return imbalanced(data, 60) if run.injects("class_imbalance") else data


def _error(outputs: Tensor, _: Tensor) -> float:
    return error_rate(outputs, _names().valid_targets)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=run.pick(2e-3, lr_too_high=1.0)),
        steps=390,
        eval_every=65,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="RNN, 48 tanh units, embedding of letters, log_softmax, Adam, clipped gradients",
    data="names of built-in functions of five languages that Pygments knows",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 2e-3",
        "no_activation": "log_softmax ahead of NLLLoss is missing",
        "init_constant": "all parameters are 0",
        "saturated_activation": "weights of the recurrent layer have a standard deviation of 3",
        "labels_constant": "all labels are 0, those for validation, too",
        "class_imbalance": "one in 60 names of every language but one",
        "exploding_rnn": "ReLU in place of tanh, recurrent weights of deviation 1, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
