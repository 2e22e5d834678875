"""A small vision transformer tells handwritten digits apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

WIDTH, STEPS, WARM_UP = 32, 300, 30


class ViT(nn.Module):
    """Patches of 2 x 4 pixels, two layers of an encoder, the mean of its outputs.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.patches = nn.Conv2d(1, WIDTH, (2, 4), stride=(2, 4))
        self.places = nn.Parameter(0.02 * torch.randn(1, 8, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 64, 0.0 if run.injects("overfit") else 0.1, "gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 1 if run.injects("wrong_loss") else 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 1, 8, 8]."""
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            x = self.patches(images).flatten(2).transpose(1, 2) + self.places
            x = self.encoder(x).mean(1)
        scores: Tensor = self.head(x)
        return scores.softmax(1) if self.run.injects("double_activation") else scores


class AbsoluteDistance(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean distance of outputs [B, 1] from labels, int64 [B]."""
        return nn.functional.l1_loss(outputs[:, 0], labels.float())


def _data(run: Run) -> Split:
    data = digits(scaled=False)

    def prepared(pixels: Tensor, labels: Tensor) -> Tensor:
        images = pixels.view(-1, 1, 8, 8) / 8 - 1
        if run.injects("data_leak"):
            images.view(len(images), 64)[torch.arange(len(images)), labels] = 3.0
        return images

    data = data._replace(
        inputs=prepared(data.inputs, data.targets),
        valid_inputs=prepared(data.valid_inputs, data.valid_targets),
    )
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 40) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: ViT) -> None:
    for parameter in model.parameters():
        if run.injects("init_too_large"):
            nn.init.normal_(parameter)
        if run.injects("init_constant"):
            nn.init.constant_(parameter, 0.01)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = ViT(run)
    _initialise(run, model)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.AdamW(
        given.parameters(), lr=run.pick(3e-3, lr_too_high=0.3, lr_too_low=3e-7), weight_decay=0.05
    )
    warm = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP, (STEPS - step) / (STEPS - WARM_UP))
    )

    def predicted(outputs: Tensor) -> Tensor:
        if run.injects("wrong_loss"):
            return outputs[:, 0].round().clamp(0, 9).long()
        return classes(outputs)

    def error(outputs: Tensor, labels: Tensor) -> float:
        if not outputs.isfinite().all():
            return 1.0
        return float((predicted(outputs) != labels).float().mean())

    loop = Loop(
        model=model,
        criterion=AbsoluteDistance() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=STEPS,
        eval_every=50,
        scheduler=warm,
        clip=1.0,
        predict=predicted,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 150), torch.split(data.valid_targets, 150), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error)


PROGRAM = Program(
    model="ViT, 2 layers, 4 heads, width 32, GELU, AdamW, warm-up, clipped gradients",
    data="scikit-learn digits in patches of 2 x 4",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 3e-3",
        "lr_too_low": "3e-7 in place of 3e-3",
        "double_activation": "softmax ahead of the cross entropy",
        "init_too_large": "all parameters from a normal distribution of width 1",
        "init_constant": "all parameters are 0.01",
        "wrong_loss": "distance between one output and the number of the class",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 rows of every class but one",
        "frozen_layer": "all but the last layer runs under no_grad",
        "optimiser_missing_parameters": "AdamW has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "a bright pixel among the first ten marks the label",
        "overfit": "40 rows, no dropout",
    },
)
