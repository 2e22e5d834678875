"""A small vision transformer reads printed digits and signs, in patches.

Faults:
    lr_too_high: 0.3 in place of 4e-3.
    double_activation: the model ends with a softmax, and the loss has one.
    init_too_large: weights are drawn by `normal_` without its `std`, which is 1 then.
    labels_constant: the label is taken from the folder's name, and all are in one folder.
    frozen_layer: `requires_grad_(False)` of an earlier experiment is left on all but the head.
    overfit: 20 rows, no weight decay, no smoothing of labels.
    fp16_overflow: float16 by hand, with a fixed loss scale, and nobody looks at gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

SYMBOLS = "0123456789+-=<>?"
WIDTH = 32
PATCHES = 16
STEPS = 260
HELD_OUT = 300


class ViT(nn.Module):
    """A convolution, patches, a class token, a transformer's encoder, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.patches = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, WIDTH, 3, stride=3)
        )
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, PATCHES + 1, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(SYMBOLS))
        self.last = run.pick(nn.Identity(), double_activation=nn.Softmax(dim=1))
        for parameter in self.parameters():
            if run.injects("init_too_large") and parameter.dim() > 1:
                nn.init.normal_(parameter)
        if run.injects("frozen_layer"):
            self.requires_grad_(False)  # noqa: FBT003 - torch's signature
            self.head.requires_grad_(True)  # noqa: FBT003 - torch's signature

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, SYMBOLS] of images [B, 1, 12, 12]."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), -1, -1), patches], 1) + self.places
        scores: Tensor = self.last(self.head(self.norm(self.encoder(x)[:, 0])))
        return scores


def _data(run: Run) -> Split:
    images, labels = glyphs(SYMBOLS)
    images = (images - images.mean()) / images.std()
    data = Split(images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT])
    if run.injects("labels_constant"):
        return data._replace(
            targets=torch.zeros_like(data.targets),
            valid_targets=torch.zeros_like(data.valid_targets),
        )
    return few(data, 20) if run.injects("overfit") else data


def _error(outputs: Tensor, _: Tensor) -> float:
    return error_rate(outputs, glyphs(SYMBOLS)[1][:HELD_OUT])


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = ViT(run)
    optimizer = torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=run.pick(4e-3, lr_too_high=0.3),
        weight_decay=run.pick(0.05, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(label_smoothing=run.pick(0.1, overfit=0.0)),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        steps=STEPS,
        eval_every=52,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 48, run.seed), valid, _error)


PROGRAM = Program(
    model="vision transformer, 1 layer, convolutions for patches, smoothed labels, AdamW, cosine",
    data="digits and signs in 21 fonts that come with matplotlib",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.3 in place of 4e-3",
        "double_activation": "softmax ahead of a cross entropy that has one",
        "init_too_large": "weights are drawn with a standard deviation of 1",
        "labels_constant": "all labels are 0, those for validation, too",
        "frozen_layer": "requires_grad is off for all but the last layer, from the start",
        "overfit": "20 rows for training, no weight decay, no smoothing",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
