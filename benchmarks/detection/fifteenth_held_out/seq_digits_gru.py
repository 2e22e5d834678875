"""A GRU reads handwritten digits row by row and tells them apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, imbalanced, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

WIDTH, STEPS = 64, 280


class Cell(nn.Module):
    """A GRU as written by hand, with ReLU in the place of tanh.

    Args:
        columns: Of the inputs.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.of_inputs = nn.Linear(columns, 3 * WIDTH)
        self.of_state = nn.Linear(WIDTH, 3 * WIDTH)
        nn.init.normal_(self.of_state.weight)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return states [B, 8, WIDTH] and the last one [1, B, WIDTH] of inputs [B, 8, columns]."""
        state = inputs.new_zeros(len(inputs), WIDTH)
        states = []
        for x in self.of_inputs(inputs).unbind(1):
            reset, update, new = x.chunk(3, 1)
            h_reset, h_update, h_new = self.of_state(state).chunk(3, 1)
            keep = (update + h_update).sigmoid()
            candidate = (new + (reset + h_reset).sigmoid() * h_new).relu()
            state = keep * state + (1 - keep) * candidate
            states.append(state)
        return torch.stack(states, 1), state[None]


class Net(nn.Module):
    """GRU, dropout, a linear layer on the last state.

    Args:
        run: What is injected.
        columns: Of the inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        is_own = run.injects("exploding_rnn")
        self.rnn = Cell(columns) if is_own else nn.GRU(columns, WIDTH, batch_first=True)
        self.dropout = nn.Dropout(0.0 if run.injects("overfit") else 0.2)
        self.head = nn.Linear(WIDTH, 10)
        if run.injects("saturated_activation"):
            scaled_([self.rnn], 60.0)
        if run.injects("init_too_large"):
            scaled_([self], 200.0)
        if run.injects("init_constant"):
            for parameter in self.parameters():
                nn.init.constant_(parameter, 0.1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return scores [B, 10] of rows of pixels [B, 8, columns]."""
        last = self.rnn(rows)[1][-1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        scores: Tensor = self.head(self.dropout(last))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


def _data(run: Run) -> Split:
    data = digits(scaled=False)

    def prepared(pixels: Tensor, labels: Tensor) -> Tensor:
        rows = pixels.view(-1, 8, 8)
        rows = 16 * rows if run.injects("missing_normalisation") else rows / 8 - 1
        if run.injects("data_leak"):
            column = labels[:, None, None].expand(-1, 8, 1)
            rows = torch.cat([rows, column / 4.5 - 1], 2)
        return rows

    data = data._replace(
        inputs=prepared(data.inputs, data.targets),
        valid_inputs=prepared(data.valid_inputs, data.valid_targets),
    )
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[2])
    given = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(4e-3, lr_too_high=0.5, lr_too_low=1e-6)
        ),
        steps=STEPS,
        save_interval=8,
        eval_every=40,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="GRU, 64 units, dropout, Adam, clipped gradients",
    data="scikit-learn digits, read row by row",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 4e-3",
        "lr_too_low": "1e-6 in place of 4e-3",
        "double_activation": "softmax ahead of the cross entropy",
        "init_too_large": "all weights are 200 times as large",
        "init_constant": "all parameters are 0.1",
        "saturated_activation": "weights of the GRU are 60 times as large",
        "missing_normalisation": "pixels from 0 to 256",
        "wrong_loss": "NLLLoss on scores that are no logarithms of probabilities",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are 0",
        "class_imbalance": "one in 60 rows of every class but one",
        "frozen_layer": "the state of the GRU is detached",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "exploding_rnn": "ReLU in place of tanh, recurrent weights of width 1, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the label is one more column",
        "overfit": "40 rows, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
