"""A recurrent autoencoder reads handwritten digits row by row and draws them again."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, filled_, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

SIDE, UNITS, CODE = 8, 64, 16


class Autoencoder(nn.Module):
    """A recurrent layer over rows, a code, a decoder of two linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(SIDE, UNITS, nonlinearity=kind, batch_first=True)
        self.code = nn.Linear(UNITS, CODE)
        self.widen = nn.Linear(CODE, 96)
        self.paint = nn.Linear(96, SIDE * SIDE)

    def forward(self, images: Tensor) -> Tensor:
        """Return images [B, 64] of images in rows [B, 8, 8]."""
        states, _ = self.rnn(images)
        code = self.code(states[:, -1])
        if self.run.injects("frozen_layer"):
            code = code.detach()
        x = self.widen(code).relu()
        pixels: Tensor = self.paint(x)
        if self.run.injects("double_activation"):
            pixels = pixels.relu()
        return pixels.sigmoid()


def _data(run: Run) -> Split:
    """Return images as inputs [B, 8, 8] and as targets [B, 64], from 0 to 1."""
    data = digits(scaled=False)
    drawn, valid = data.inputs / 16, data.valid_inputs / 16
    data = Split(drawn.view(-1, SIDE, SIDE), drawn, valid.view(-1, SIDE, SIDE), valid)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 16) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: Autoencoder) -> None:
    if run.injects("init_constant"):
        filled_([model], 0.05)
    if run.injects("init_too_large"):
        scaled_([model], 15.0)
    if run.injects("dead_relu"):
        shifted_([model.widen], -10.0)
    if run.injects("saturated_activation"):
        nn.init.normal_(model.paint.weight, std=20.0)
    if run.injects("exploding_rnn"):
        nn.init.normal_(model.rnn.all_weights[0][1])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Autoencoder(run)
    _initialise(run, model)
    given = nn.ModuleList([model.widen, model.paint])
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=torch.optim.Adam(
            (given if run.injects("optimiser_missing_parameters") else model).parameters(),
            lr=run.pick(8e-3, lr_too_high=1.0, lr_too_low=2e-6),
        ),
        steps=400,
        eval_every=50,
        clip=None if run.injects("exploding_rnn") else 1.0,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="autoencoder, RNN of 64 tanh units, code of 16, decoder 96-64, ReLU, Adam",
    data="scikit-learn digits, row by row",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1 in place of 8e-3",
        "lr_too_low": "2e-6 in place of 8e-3",
        "double_activation": "ReLU ahead of the last sigmoid",
        "init_too_large": "all weights are 15 times as large",
        "init_constant": "all parameters are 0.05",
        "dead_relu": "biases ahead of the ReLUs are 10 lower",
        "saturated_activation": "weights ahead of the last sigmoid are 20 wide",
        "wrong_loss": "cross entropy of 64 classes, which are the pixels",
        "labels_shuffled": "the images to draw are permuted",
        "labels_constant": "the image to draw is always the first one",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "Adam has the decoder only",
        "exploding_rnn": "ReLU, recurrent weights from a normal distribution, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "16 images",
    },
)
