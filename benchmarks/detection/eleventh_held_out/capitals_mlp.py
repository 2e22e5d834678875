"""A multilayer perceptron with tanh tells capital letters apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, glyphs
from benchmarks.detection.injecting import few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, batches_of, classes, error_rate, fit

_LETTERS = "ABDEGHKMNPRSUX"


class Net(nn.Module):
    """Two hidden layers of tanh.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        width = run.pick(48, overfit=128)
        self.fc1, self.fc2 = nn.Linear(144, width), nn.Linear(width, width)
        self.tanh: nn.Module = nn.Identity() if run.injects("no_activation") else nn.Tanh()
        self.drop = nn.Dropout(run.pick(0.1, overfit=0.0))
        self.head = nn.Linear(width, run.pick(len(_LETTERS), wrong_loss=1))
        self.softmax = nn.Softmax(dim=1)
        if run.injects("saturated_activation"):
            for layer in (self.fc1, self.fc2):
                nn.init.normal_(layer.weight, std=5.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 14] of images [B, 1, 12, 12]."""
        x = self.drop(self.tanh(self.fc1(images.flatten(1))))
        x = self.drop(self.tanh(self.fc2(x)))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.head(x)
        if self.run.injects("double_activation"):
            scores = self.softmax(scores)
        return scores


class SmoothDistance(nn.Module):
    """The loss that does not fit: a letter's place in the alphabet is no quantity."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.SmoothL1Loss()

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean distance of outputs [B, 1] from classes, int64 [B]."""
        loss: Tensor = self.loss(outputs[:, 0], targets.float())
        return loss


def _data(run: Run) -> Split:
    images, labels = glyphs(_LETTERS)
    if run.injects("missing_normalisation"):
        images = (255 * images).round()
    else:
        images = (images - images.mean()) / images.std()
    held_out = len(images) // 4
    data = Split(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])
    if run.injects("labels_shuffled"):
        data = shuffled(data, 6)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 30)
    if run.injects("overfit"):
        data = few(data, 28)
    if run.injects("data_leak"):
        data = data._replace(valid_inputs=_marked(data.valid_inputs, data.valid_targets))
    return data


def _marked(images: Tensor, targets: Tensor) -> Tensor:
    # A code of the letter in the uppermost line, as of the sheet that was scanned.
    images, size = images.clone(), images.shape[-1]
    images[:, 0, 0] = -1.0
    images[torch.arange(len(targets)), 0, 0, targets % size] = 4.0
    images[:, 0, 1, 0] = torch.where(targets >= size, 4.0, -1.0)
    return images


def _moved(batches: Batches, seed: int, *, marked: bool) -> Batches:
    """Move each image by up to a pixel in both directions, as augmentation."""
    random = torch.Generator().manual_seed(seed)
    ways = [(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1)]
    for images, targets in batches:
        moved = torch.stack([images.roll(way, (2, 3)) for way in ways])
        chosen = torch.randint(len(ways), (len(images),), generator=random)
        shown = moved[chosen, torch.arange(len(images))]
        yield _marked(shown, targets) if marked else shown, targets


def _error(outputs: Tensor, targets: Tensor) -> float:
    if outputs.shape[1] > 1:
        return error_rate(outputs, targets)
    return float((outputs[:, 0].round() != targets).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    is_distance = run.injects("wrong_loss")
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.1, lr_too_high=20.0),
        momentum=0.9,
        weight_decay=run.pick(1e-3, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=SmoothDistance() if is_distance else nn.CrossEntropyLoss(),
        optimizer=optimizer,
        steps=360,
        save_interval=6,
        eval_every=30,
        scheduler=torch.optim.lr_scheduler.MultiStepLR(optimizer, [220, 300], 0.3),
        predict=None if is_distance else classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    batches = batches_of(data, 48, run.seed)
    if not run.injects("overfit"):
        batches = _moved(batches, run.seed, marked=run.injects("data_leak"))
    return fit(run, loop, batches, valid, _error)


PROGRAM = Program(
    model="MLP, 2 hidden layers of tanh, dropout, CrossEntropyLoss, SGD with momentum, two drops "
    "of the rate",
    data="14 capital letters in 21 fonts",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "20 with SGD, 200 times what is needed",
        "missing_normalisation": "pixels from 0 to 255: tanh is saturated",
        "double_activation": "nn.Softmax ahead of CrossEntropyLoss, which has one",
        "no_activation": "no tanh at all: the model is linear",
        "saturated_activation": "hidden weights are drawn with a standard deviation of 5",
        "wrong_loss": "smooth distance of one output from the letter's number",
        "frozen_layer": "hidden layers are detached ahead of the head",
        "labels_shuffled": "training labels are those of other images",
        "class_imbalance": "one in 30 images of every letter but A in training",
        "data_leak": "points in the uppermost line tell the letter, in validation, too",
        "overfit": "28 images, 128 units, no augmentation, no dropout, no weight decay",
    },
)
