"""A small transformer reads handwritten digits row by row."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import digits
from benchmarks.detection.injecting import imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

WIDTH = 32


class Net(nn.Module):
    """Rows as tokens, two encoder layers, the mean of all places, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embed = nn.Linear(8, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(8, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, run.pick(10, wrong_loss=1))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 64]."""
        x = self.encoder(self.embed(images.view(-1, 8, 8)) + self.places).mean(1)
        return self.head(x.detach() if self.run.injects("frozen_layer") else x)


class Distance(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean distance of outputs [B, 1] to numbers of classes [B]."""
        return nn.functional.l1_loss(outputs[:, 0], labels.float())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = digits()
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    model = Net(run)
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, 9).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, targets: Tensor) -> float:
        if not is_distance:
            return error_rate(outputs, targets)
        return float((predicted(outputs) != targets).float().mean())

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=run.pick(3e-3, lr_too_high=1.0), weight_decay=0.01
    )
    loop = Loop(
        model=model,
        criterion=Distance() if is_distance else nn.CrossEntropyLoss(label_smoothing=0.05),
        optimizer=optimizer,
        steps=250,
        save_interval=5,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error)


PROGRAM = Program(
    model="transformer, 2 layers, width 32, GELU, AdamW, label smoothing",
    data="scikit-learn digits, rows as tokens",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 3e-3",
        "wrong_loss": "distance between one output and the number of the class",
        "labels_shuffled": "training labels are permuted",
        "class_imbalance": "one in 60 rows of every class but one",
        "frozen_layer": "the encoder's output is detached",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
