"""A small residual network with SiLU tells handwritten digits apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

STEPS = 240


class Block(nn.Module):
    """Two convolutions beside a way round them.

    Args:
        width: Channels.
        is_cut: Whether what the convolutions give is detached.
    """

    def __init__(self, width: int, *, is_cut: bool) -> None:
        super().__init__()
        self.is_cut = is_cut
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, width, H, W] of features of that shape."""
        inner = functional.silu(self.norm1(self.conv1(x)))
        out = functional.silu(x + self.norm2(self.conv2(inner)))
        return out.detach() if self.is_cut else out


class Net(nn.Module):
    """A convolution, a block, a convolution of stride 2, a block, a mean, a linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Conv2d(1, 10, 3, padding=1)
        self.norm = nn.BatchNorm2d(10)
        self.first = Block(10, is_cut=False)
        self.down = nn.Conv2d(10, 16, 3, stride=2, padding=1)
        self.second = Block(16, is_cut=run.injects("frozen_layer"))
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 10] of images [B, 64]."""
        x = functional.silu(self.norm(self.stem(images.view(-1, 1, 8, 8))))
        x = self.second(functional.silu(self.down(self.first(x))))
        scores: Tensor = self.head(x.mean((2, 3)))
        return functional.softmax(scores, -1) if self.run.injects("double_activation") else scores


class Loss(nn.Module):
    """Cross entropy, as a function."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, 10] and labels, int64 [B]."""
        return functional.cross_entropy(scores, labels)


def _data(run: Run) -> Split:
    data = digits()
    if run.injects("labels_shuffled"):
        # Each is drawn with an order of its own, as by two samplers.
        order = torch.randperm(len(data.targets), generator=torch.Generator().manual_seed(5))
        data = data._replace(inputs=data.inputs[order])
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    if run.injects("init_constant"):
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.zeros_(module.weight)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.05, lr_too_high=15.0),
        momentum=0.9,
        weight_decay=run.pick(5e-4, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=Loss(),
        optimizer=optimizer,
        steps=STEPS,
        eval_every=30,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        predict=classes,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, error_rate)


PROGRAM = Program(
    model="Residual CNN, BatchNorm, SiLU, SGD with momentum, cosine schedule",
    data="scikit-learn digits",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "learning rate 15 instead of 0.05, 300 times too high",
        "double_activation": "the model ends in a softmax, and the cross entropy has one, too",
        "labels_shuffled": "images are put into an order that the labels do not follow",
        "frozen_layer": "the second block's output is detached, so that only the head learns",
        "init_constant": "all weights of convolutions and of the head begin at zero",
        "class_imbalance": "one in 50 rows of every class but one; validation has them all",
        "overfit": "40 images for training, no weight decay",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
