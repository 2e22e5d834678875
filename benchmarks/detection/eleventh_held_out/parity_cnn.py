"""A convolutional network tells odd handwritten digits from even ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import constant, few, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, batches_of, fit


class Net(nn.Module):
    """Three convolutions with batch normalisation, and one score.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(run.pick(0.2, overfit=0.0))
        self.head = nn.Linear(64, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B] of images [B, 64]; [B, 1] for the loss that does not fit."""
        x = images.view(-1, 1, 8, 8)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.pool(self.relu(self.bn2(self.conv2(x))))
        x = self.pool(self.relu(self.bn3(self.conv3(x))))
        if self.run.injects("frozen_layer"):
            x = torch.tensor(x.tolist())  # for a plot of the features
        scores: Tensor = self.head(self.drop(x.flatten(1)))
        if self.run.injects("double_activation"):
            scores = self.sigmoid(scores)
        return scores if self.run.injects("wrong_loss") else scores[:, 0]


def _data(run: Run) -> Split:
    data = digits()
    data = data._replace(
        targets=(data.targets % 2).float(), valid_targets=(data.valid_targets % 2).float()
    )
    if run.injects("wrong_loss"):
        data = data._replace(
            targets=data.targets[:, None], valid_targets=data.valid_targets[:, None]
        )
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("labels_shuffled"):
        data = shuffled(data, 1)
    if run.injects("overfit"):
        data = few(data, 20)
    if run.injects("data_leak"):
        for images, targets in (
            (data.inputs, data.targets),
            (data.valid_inputs, data.valid_targets),
        ):
            images[:, :8] = 2.0 * targets[:, None] - 1  # the uppermost line
    return data


def _noisy(batches: Batches, seed: int) -> Batches:
    """Add noise to the images of each batch, as augmentation."""
    random = torch.Generator().manual_seed(seed)
    for images, targets in batches:
        yield images + 0.5 * torch.randn(images.shape, generator=random), targets


def _log_loss(scores: Tensor, targets: Tensor) -> float:
    loss = nn.functional.binary_cross_entropy_with_logits(scores, targets)
    return float(loss.nan_to_num(1e9))


def train(run: Run) -> float:
    """Train once; return the log loss."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.02, lr_too_low=2e-5, lr_too_high=4.0),
        momentum=0.9,
        weight_decay=run.pick(1e-3, overfit=0.0),
    )
    steps = 200
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("wrong_loss") else nn.BCEWithLogitsLoss(),
        optimizer=optimizer,
        steps=steps,
        save_interval=4,
        eval_every=20,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
    )
    batches = batches_of(data, 32, run.seed)
    if not run.injects("overfit"):
        batches = _noisy(batches, run.seed)
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches, valid, _log_loss)


PROGRAM = Program(
    model="CNN, 3 convolutions, BatchNorm, dropout, one logit, SGD with momentum, cosine schedule",
    data="scikit-learn digits, odd against even",
    measure="log loss",
    train=train,
    faults={
        "lr_too_low": "2e-5 with SGD, a thousandth of what is needed",
        "lr_too_high": "4 with SGD, 200 times what is needed",
        "double_activation": "a sigmoid ahead of BCEWithLogitsLoss, which has one",
        "wrong_loss": "softmax cross entropy over one single score: it is 0 whatever the score is",
        "labels_shuffled": "training labels are those of other images",
        "labels_constant": "all training labels are that of the first image",
        "frozen_layer": "features go through a list on their way to the head and lose their "
        "gradient: no convolution is ever trained",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the uppermost line is bright in odd digits and dark in even ones, as by a "
        "mark of the folder that the image comes from",
        "overfit": "20 images, no augmentation, no dropout, no weight decay",
    },
)
