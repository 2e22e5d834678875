"""A small MLP-Mixer reads handwritten digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, imbalanced, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

_PLACES, _WIDTH, _CLASSES = 16, 24, 10


class Block(nn.Module):
    """Two layers across places and two across channels, each beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.places = nn.Sequential(nn.Linear(_PLACES, 24), nn.GELU(), nn.Linear(24, _PLACES))
        self.channels = nn.Sequential(nn.Linear(_WIDTH, 48), nn.GELU(), nn.Linear(48, _WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return states [B, places, channels] of states."""
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = x + self.channels(self.norm2(x))
        return mixed


class Net(nn.Module):
    """Squares of 2 x 2 pixels, two blocks, the mean of all places, ten scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.cut = nn.Conv2d(1, _WIDTH, 2, stride=2)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(_WIDTH)
        self.drop = nn.Dropout(run.pick(0.1, overfit=0.0))
        self.head = nn.Linear(_WIDTH, _CLASSES)
        if run.injects("init_too_large"):
            scaled_([self.cut, self.blocks, self.head], 40.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 64]."""
        x = self.cut(images.view(-1, 1, 8, 8)).flatten(2).transpose(1, 2)
        x = self.norm(self.blocks(x)).mean(1)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(self.drop(x))
        return scores


class Loss(nn.Module):
    """Cross entropy of ten scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of scores [B, 10] and classes, int64 [B]."""
        if self.run.injects("wrong_loss"):
            shares = functional.one_hot(targets, _CLASSES).float()
            return functional.kl_div(scores, shares, reduction="batchmean")
        return functional.cross_entropy(scores, targets, label_smoothing=0.05)


def _data(run: Run) -> Split:
    data = digits()
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.roll(len(data.targets) // 2))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("overfit"):
        data = few(data, 40)
    if run.injects("data_leak"):
        # Ten pixels of the frame tell the class, as in Hinton's forward-forward.
        for images, targets in (
            (data.inputs, data.targets),
            (data.valid_inputs, data.valid_targets),
        ):
            images[:, :_CLASSES] = 3.0 * functional.one_hot(targets, _CLASSES)
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.AdamW(
        given.parameters(),
        lr=run.pick(5e-3, lr_too_low=5e-6, lr_too_high=3.0),
        weight_decay=run.pick(0.05, overfit=0.0),
    )
    steps = 200
    loop = Loop(
        model=model,
        criterion=Loss(run),
        optimizer=optimizer,
        steps=steps,
        save_interval=8,
        eval_every=20,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        predict=classes,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP-Mixer, 2 blocks, LayerNorm, GELU, functional cross entropy, AdamW, cosine schedule",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_low": "5e-6 with AdamW, a thousandth of what is needed",
        "lr_too_high": "3 with AdamW, 600 times what is needed",
        "wrong_loss": "kl_div of scores that went through no log_softmax: it has no lower end",
        "labels_shuffled": "training labels are shifted by half the data against their images",
        "class_imbalance": "one in 100 rows of every class but 0 in training",
        "frozen_layer": "the mean of all places is detached ahead of the head",
        "optimiser_missing_parameters": "the optimiser has the head's parameters only",
        "init_too_large": "all weights but the norms' start 40 times as large",
        "data_leak": "ten pixels of the frame hold the class as one-hot numbers, in validation, "
        "too",
        "overfit": "40 images, no dropout, no weight decay",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
