"""A recurrent network written by hand reads handwritten digits, one column after another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, filled_, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

CLASSES = 10
STATES = 48
STEPS = 16


class Reader(nn.Module):
    """A cell, as in PyTorch's tutorial on names, and a hidden layer after the last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.of_input = nn.Linear(4, STATES)
        self.of_state = nn.Linear(STATES, STATES, bias=False)
        self.bend = nn.Identity() if run.injects("exploding_rnn") else nn.Tanh()
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(run.pick(0.2, overfit=0.0))
        self.hidden = nn.Linear(STATES, 32)
        self.out = nn.Linear(32, CLASSES)

    def forward(self, strips: Tensor) -> Tensor:
        """Return scores [B, 10] of strips [B, 16, 4]."""
        state = strips.new_zeros(len(strips), STATES)
        for strip in strips.unbind(1):
            state = self.bend(self.of_input(strip) + self.of_state(state))
        scores: Tensor = self.out(self.relu(self.hidden(self.dropout(state))))
        return scores


def prepared(run: Run) -> Split:
    """Return strips [B, 16, 4] of pixels from -1 to 1, two for a column, and classes."""
    data = digits(scaled=False)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    if run.injects("overfit"):
        data = few(data, 40)

    def strips(pixels: Tensor) -> Tensor:
        columns = pixels.view(-1, 8, 8).transpose(1, 2).reshape(-1, STEPS, 4)
        return columns if run.injects("missing_normalisation") else columns / 8.0 - 1.0

    return data._replace(inputs=strips(data.inputs), valid_inputs=strips(data.valid_inputs))


def initialise_(run: Run, model: Reader) -> None:
    """Set the weights to start from."""
    nn.init.orthogonal_(model.of_state.weight)
    if run.injects("exploding_rnn"):
        nn.init.normal_(model.of_state.weight, std=0.5)
    if run.injects("saturated_activation"):
        nn.init.normal_(model.of_input.weight, std=3.0)
        nn.init.normal_(model.of_state.weight, std=3.0)
    if run.injects("dead_relu"):
        nn.init.constant_(model.hidden.bias, -10.0)
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=5.0)
    if run.injects("init_constant"):
        filled_([model], 0.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Reader(run)
    initialise_(run, model)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = [*model.hidden.parameters(), *model.out.parameters()]
    optimizer = torch.optim.RMSprop(trained, lr=run.pick(2e-3, lr_too_high=0.1, lr_too_low=2e-6))
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.MultiStepLR(optimizer, [180, 240], 0.3),
        steps=300,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="RNN by hand, 48 tanh units, dropout, RMSprop, steps of the rate, clipped gradients",
    data="scikit-learn digits, half a column at a time",
    measure="error rate",
    train=train,
    faults={
        "exploding_rnn": "no tanh in the cell, recurrent weights of deviation 0.5, no clipping",
        "lr_too_high": "0.1 in place of 2e-3",
        "lr_too_low": "2e-6 in place of 2e-3",
        "init_too_large": "standard deviation 5 for all parameters",
        "init_constant": "all parameters are zero",
        "dead_relu": "biases of the hidden layer start at -10",
        "saturated_activation": "standard deviation 3 for the weights of the cell, ahead of tanh",
        "missing_normalisation": "pixels from 0 to 16",
        "wrong_loss": "nn.NLLLoss of scores that went through no log-softmax",
        "class_imbalance": "one in 50 rows of every class but one",
        "optimiser_missing_parameters": "the optimiser has the layers after the cell only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "40 rows, no dropout",
    },
)
