"""A variational autoencoder of handwritten digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, filled_, scaled_, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

PIXELS, HIDDEN, CODE = 64, 96, 10


class Vae(nn.Module):
    """Encoder, sampling, decoder.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.hidden = nn.Linear(PIXELS, HIDDEN)
        self.mean = nn.Linear(HIDDEN, CODE)
        self.log_variance = nn.Linear(HIDDEN, CODE)
        self.widen = nn.Linear(CODE, HIDDEN)
        self.paint = nn.Linear(HIDDEN, PIXELS)
        self.activation = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of pixels, means and log variances, [B, 64 + 10 + 10], of [B, 64]."""
        x = self.activation(self.hidden(images))
        mean, log_variance = self.mean(x), self.log_variance(x)
        code = mean
        if self.training:
            width = (log_variance / 2).exp()
            normal = torch.distributions.Normal(mean, width, validate_args=False)
            draw = normal.sample if self.run.injects("frozen_layer") else normal.rsample
            code = draw()
        pixels = self.paint(self.activation(self.widen(code)))
        if self.run.injects("double_activation"):
            pixels = pixels.sigmoid()
        return torch.cat([pixels, mean, log_variance], 1)


class Elbo(nn.Module):
    """What is not reproduced, and the distance of the codes from a normal distribution.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.averaged = "mean" if run.injects("wrong_loss") else "sum"

    def forward(self, outputs: Tensor, images: Tensor) -> Tensor:
        """Return the loss per image of outputs [B, 64 + 10 + 10] and images [B, 64]."""
        scores, codes = outputs[:, :PIXELS], outputs[:, PIXELS:]
        mean, log_variance = codes[:, :CODE], codes[:, CODE:]
        rebuilt = functional.binary_cross_entropy_with_logits(
            scores, images, reduction=self.averaged
        )
        if self.averaged == "sum":
            rebuilt = rebuilt / len(images)
        distance = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
        loss: Tensor = rebuilt + distance.mean()
        return loss


def _data(run: Run) -> Split:
    """Return images [B, 64] from 0 to 1 as inputs and as targets."""
    data = digits(scaled=False)
    white = 1.0 if run.injects("missing_normalisation") else 16.0
    inputs, valid = data.inputs / white, data.valid_inputs / white
    data = Split(inputs, inputs, valid, valid)
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    return few(data, 20) if run.injects("overfit") else data


def _initialise(run: Run, model: Vae) -> None:
    if run.injects("init_too_large"):
        scaled_([model], 8.0)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("dead_relu"):
        shifted_([model.hidden], -6.0)
    if run.injects("saturated_activation"):
        shifted_([model.paint], 12.0)


def _error(outputs: Tensor, images: Tensor) -> float:
    return unexplained(outputs[:, :PIXELS].sigmoid(), images)


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Vae(run)
    _initialise(run, model)
    given = nn.ModuleList([model.widen, model.paint])
    loop = Loop(
        model=model,
        criterion=Elbo(run),
        optimizer=torch.optim.Adam(
            (given if run.injects("optimiser_missing_parameters") else model).parameters(),
            lr=run.pick(4e-3, lr_too_high=0.3, lr_too_low=2e-6),
        ),
        steps=400,
        eval_every=50,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="variational autoencoder 64-96-10-96-64, ReLU, binary cross entropy, Adam",
    data="scikit-learn digits",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 4e-3",
        "lr_too_low": "2e-6 in place of 4e-3",
        "double_activation": "sigmoid ahead of a binary cross entropy that has one",
        "init_too_large": "all weights are 8 times as large",
        "init_constant": "all parameters are 0",
        "dead_relu": "biases ahead of the encoder's ReLUs are 6 lower",
        "saturated_activation": "biases ahead of the last sigmoid are 12 higher",
        "missing_normalisation": "pixels from 0 to 16 for a binary cross entropy",
        "wrong_loss": "the cross entropy is averaged over pixels, the distance is summed",
        "labels_shuffled": "the images to reproduce are permuted",
        "labels_constant": "the image to reproduce is always the first one",
        "frozen_layer": "codes come from sample() in place of rsample()",
        "optimiser_missing_parameters": "Adam has the decoder only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "20 images",
        "stalled": "hangs after 60 % of the steps",
    },
)
