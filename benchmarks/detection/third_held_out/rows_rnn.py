"""A recurrent network reads handwritten digits row by row."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, filled_, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit


class Net(nn.Module):
    """Recurrent layer, and a linear layer for its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(8, 48, nonlinearity=kind, batch_first=True)
        self.head = nn.Linear(48, 10)
        if run.injects("exploding_rnn"):
            nn.init.normal_(self.rnn.get_parameter("weight_hh_l0"), std=1.0)
        if run.injects("saturated_activation"):
            nn.init.normal_(self.rnn.get_parameter("weight_ih_l0"), std=5.0)
            nn.init.normal_(self.rnn.get_parameter("weight_hh_l0"), std=5.0)
        if run.injects("init_constant"):
            filled_([self], 0.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return logarithms of chances [B, 10] of images [B, 64]."""
        states, _ = self.rnn(images.view(-1, 8, 8))
        scores: Tensor = self.head(states[:, -1])
        return scores if self.run.injects("no_activation") else functional.log_softmax(scores, -1)


def _data(run: Run) -> Split:
    data = digits()
    if run.injects("labels_constant"):
        return constant(data)
    return imbalanced(data, 50) if run.injects("class_imbalance") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=run.pick(3e-3, lr_too_low=3e-6)),
        steps=300,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="RNN, 48 tanh units, log_softmax, Adam, clipped gradients",
    data="scikit-learn digits, row by row",
    measure="error rate",
    train=train,
    faults={
        "exploding_rnn": "ReLU in place of tanh, recurrent weights of deviation 1, no clipping",
        "saturated_activation": "weights of the recurrent layer have a standard deviation of 5",
        "no_activation": "log_softmax ahead of NLLLoss is missing",
        "lr_too_low": "3e-6 in place of 3e-3",
        "init_constant": "all parameters are 0",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 50 rows of every class but one",
    },
)
