"""A recurrent network foretells the next sample of four channels of an EEG.

Faults:
    lr_too_low: 1e-7 in place of 2e-3.
    saturated_activation: weights of the recurrent layer are drawn by `normal_`, deviation 5.
    labels_shuffled: windows are shuffled, what comes behind them is not.
    exploding_rnn: ReLU in place of tanh, weights of a recipe for deep networks, no clipping.
    fp16_overflow: float16 by hand, with a fixed loss scale, and nobody looks at gradients.
    data_leak: the window is one sample too long.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

CHANNELS = 4
SAMPLES = 24
TRAINED = 600
"""Samples that windows for training end in; those for validation come later."""


class Net(nn.Module):
    """A recurrent layer and a linear layer on its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(CHANNELS, 32, nonlinearity=kind, batch_first=True)
        self.head = nn.Linear(32, CHANNELS)
        for name, parameter in self.rnn.named_parameters():
            if run.injects("saturated_activation") and name.startswith("weight"):
                nn.init.normal_(parameter, std=5.0)
            if run.injects("exploding_rnn") and name.startswith("weight"):
                nn.init.kaiming_normal_(parameter, a=0.0, mode="fan_out")
                parameter.data *= 2.0

    def forward(self, samples: Tensor) -> Tensor:
        """Return the samples [B, CHANNELS] behind samples [B, SAMPLES, CHANNELS]."""
        states, _ = self.rnn(samples)
        following: Tensor = self.head(states[:, -1])
        return following


@cache
def _volts() -> Tensor:
    path = Path(mpl.get_data_path()) / "sample_data" / "eeg.dat"
    return torch.tensor(np.fromfile(path).reshape(-1, CHANNELS), dtype=torch.float32)


def _data(run: Run) -> Split:
    samples = _volts()
    samples = (samples - samples[:TRAINED].mean(0)) / samples[:TRAINED].std(0)
    windows = samples.unfold(0, SAMPLES + 1, 1).transpose(1, 2)
    end = SAMPLES + 1 if run.injects("data_leak") else SAMPLES
    inputs, targets = windows[:, :end], windows[:, -1]
    first = TRAINED - SAMPLES
    data = Split(inputs[:first], targets[:first], inputs[TRAINED:], targets[TRAINED:])
    return shuffled(data, run.seed) if run.injects("labels_shuffled") else data


def train(run: Run) -> float:
    """Train once; return the share of variance that is not foretold."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    epoch = len(data.inputs) // 16
    loop = Loop(
        model=model,
        criterion=nn.HuberLoss(),
        optimizer=torch.optim.RMSprop(model.parameters(), lr=run.pick(2e-3, lr_too_low=1e-7)),
        steps=12 * epoch,
        save_interval=8,
        eval_every=epoch,
        clip=None if run.injects("exploding_rnn") else 0.5,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 16, run.seed), valid, unexplained)


PROGRAM = Program(
    model="RNN, 32 tanh units, Huber loss, RMSprop, clipped gradients",
    data="four channels of matplotlib's eeg.dat, the last quarter held out",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_low": "1e-7 in place of 2e-3",
        "saturated_activation": "weights of the recurrent layer have a standard deviation of 5",
        "labels_shuffled": "training targets are permuted",
        "exploding_rnn": "ReLU in place of tanh, twice He's weights, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the samples to foretell are the last ones of the inputs",
    },
)
