"""A recurrent network with a gate tells help from source code by sixteen letters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, code_text, docs_text, letters
from benchmarks.detection.injecting import scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

LETTERS = 60
LENGTH = 16
UNITS = 32


class Net(nn.Module):
    """Embedding, units with one gate that are written out, linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(LETTERS, 16)
        self.enter = nn.Linear(16, 2 * UNITS)
        self.recur = nn.Parameter(torch.empty(UNITS, 2 * UNITS))
        nn.init.normal_(self.recur, std=UNITS**-0.5)
        if run.injects("exploding_rnn"):
            nn.init.normal_(self.recur)
        self.head = nn.Linear(UNITS, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, 1] of letters [B, LENGTH]."""
        entered = self.enter(self.embedding(tokens))
        state = torch.zeros_like(entered[:, 0, :UNITS])
        for each in entered.unbind(1):
            gate, new = (each + state @ self.recur).chunk(2, 1)
            new = new if self.run.injects("exploding_rnn") else new.tanh()
            state = state + gate.sigmoid() * (new - state)
        return self.head(state.detach() if self.run.injects("frozen_layer") else state)


def predicted(outputs: Tensor) -> Tensor:
    """Return classes, int64 [B, 1], of scores [B, 1]."""
    return (outputs > 0).long()


def error(outputs: Tensor, targets: Tensor) -> float:
    """Return the error rate."""
    if not outputs.isfinite().all():
        return 1.0
    return float((predicted(outputs) != targets).float().mean())


def _data() -> Split:
    texts = ["\n".join(text().values())[:96_000] for text in (docs_text, code_text)]
    # Runs of blanks would tell at once.
    joined = [" ".join(text.split())[:64_000] for text in texts]
    pieces = letters("".join(joined), LETTERS).view(-1, LENGTH)
    labels = (torch.arange(len(pieces)) >= len(pieces) // 2).float()[:, None]
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    train, valid = order[1000:], order[:1000]
    return Split(pieces[train], labels[train], pieces[valid], labels[valid])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data()
    model = Net(run)
    if run.injects("init_too_large"):
        scaled_([model], 30.0)
    part = run.pick(model, optimiser_missing_parameters=model.head)
    optimizer = torch.optim.RMSprop(part.parameters(), lr=3e-3, momentum=0.5)
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(),
        optimizer=optimizer,
        steps=350,
        save_interval=5,
        eval_every=70,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 16, run.seed), valid, error)


PROGRAM = Program(
    model="32 recurrent units with a gate, tanh, RMSprop with momentum, clipped gradients",
    data="letters of Python's help and of the source of its library",
    measure="error rate",
    train=train,
    faults={
        "exploding_rnn": "tanh is forgotten, recurrent weights of variance 1, no clipping",
        "init_too_large": "all weights are 30 times as large",
        "frozen_layer": "the last state is detached",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
    },
)
