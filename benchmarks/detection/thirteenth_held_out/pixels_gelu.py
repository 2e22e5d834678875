"""A multilayer perceptron with GELU and layer normalisation tells handwritten digits apart."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, filled_, imbalanced, leaking
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

CLASSES = 10
WIDTH = 96
STEPS = 240


class Classifier(nn.Module):
    """Three hidden layers, each with layer normalisation, and a head.

    Args:
        run: What is injected.
        columns: Of the inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        sizes = (columns, WIDTH, WIDTH, WIDTH)
        blocks = []
        for before, after in pairwise(sizes):
            bend = nn.Identity() if run.injects("no_activation") else nn.GELU()
            norm = nn.Identity() if run.injects("init_too_large") else nn.LayerNorm(after)
            blocks.append(nn.Sequential(nn.Linear(before, after), norm, bend, nn.Dropout(0.1)))
        self.backbone = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTH, run.pick(CLASSES, wrong_loss=1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return scores [B, 10] of pixels [B, 64]."""
        scores: Tensor = self.head(self.backbone(pixels))
        return scores


class AbsoluteDistance(nn.Module):
    """The loss that does not fit: a class is no quantity."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.L1Loss()

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean distance of outputs [B, 1] from numbers of classes [B]."""
        found: Tensor = self.loss(outputs.flatten(), labels.float())
        return found


def prepared(run: Run) -> Split:
    """Return pixels [B, 64], from 0 to 1, and classes."""
    data = digits(scaled=False)
    data = data._replace(inputs=data.inputs / 16.0, valid_inputs=data.valid_inputs / 16.0)
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("labels_shuffled"):
        # Rows were sorted by brightness, the file of the labels was not.
        data = data._replace(inputs=data.inputs[data.inputs.mean(1).argsort()])
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, 9))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    return few(data, 50) if run.injects("overfit") else data


def initialise_(run: Run, model: Classifier) -> None:
    """Set the weights to start from, where they are not those of PyTorch."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            if run.injects("init_too_large"):
                nn.init.normal_(layer.weight, 0.0, 1.0)
            if run.injects("init_constant"):
                filled_([layer], 0.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Classifier(run, data.inputs.shape[1])
    initialise_(run, model)
    if run.injects("frozen_layer"):
        model.backbone.requires_grad_(False)  # noqa: FBT003
    peak = run.pick(4e-3, lr_too_high=3.0, lr_too_low=4e-6)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=peak, weight_decay=run.pick(1e-2, overfit=0.0)
    )
    is_distance = run.injects("wrong_loss")

    def predicted(outputs: Tensor) -> Tensor:
        return outputs[:, 0].round().clamp(0, 9).long() if is_distance else classes(outputs)

    def error(outputs: Tensor, targets: Tensor) -> float:
        if is_distance:
            return float((predicted(outputs) != targets).float().mean())
        return error_rate(outputs, targets)

    loop = Loop(
        model=model,
        criterion=AbsoluteDistance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=STEPS),
        steps=STEPS,
        clip=1.0,
        predict=predicted,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 128, run.seed), valid, error)


PROGRAM = Program(
    model="MLP, 3 hidden layers, LayerNorm, GELU, dropout, AdamW, one cycle of the rate",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "a peak of 3 in place of 4e-3",
        "lr_too_low": "a peak of 4e-6 in place of 4e-3",
        "no_activation": "no GELU between the layers",
        "init_too_large": "standard deviation 1 for all weights, and no layer normalisation",
        "init_constant": "parameters of the linear layers are zero",
        "wrong_loss": "distance between one output and the number of the class",
        "labels_shuffled": "training rows are sorted, their labels are not",
        "labels_constant": "every training label is 9",
        "class_imbalance": "one in 60 rows of every class but one",
        "frozen_layer": "all but the head is frozen, though nothing was trained before",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the class is one of the columns",
        "overfit": "50 rows, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
