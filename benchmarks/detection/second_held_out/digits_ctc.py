"""A network reads three handwritten digits side by side and is not told where they are: CTC."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

BLANK = 10
LENGTH = 3


class Net(nn.Module):
    """Convolutions over an image, a recurrent layer over its columns, scores for each column.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, (8, 5), stride=(1, 2), padding=(0, 2))
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(16)
        self.act1, self.act2 = nn.Hardswish(), nn.Hardswish()
        self.rnn = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, BLANK + 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logarithms of probabilities [B, 12, 11] of images [B, 1, 8, 24]."""
        x = self.act2(self.bn2(self.conv2(self.act1(self.bn1(self.conv1(images))))))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores = self.head(self.rnn(x[:, :, 0].transpose(1, 2))[0])
        if self.run.injects("double_activation"):
            scores = scores.softmax(2)
        return scores.log_softmax(2)


class Alignment(nn.Module):
    """The CTC loss of strings that are all of one length."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over outputs [B, T, 11] and labels, int64 [B, LENGTH]."""
        lengths = torch.full((len(outputs),), outputs.shape[1])
        of_labels = torch.full((len(labels),), labels.shape[1])
        return nn.functional.ctc_loss(outputs.transpose(0, 1), labels, lengths, of_labels, BLANK)


def misread(outputs: Tensor, labels: Tensor) -> float:
    """Return the share of letters that would have to be changed, at most 1, by edit distance."""
    if not outputs.isfinite().all():
        return 1.0
    wrong = 0
    for path, right in zip(outputs.argmax(2).tolist(), labels.tolist(), strict=True):
        before = [BLANK, *path]
        read = [new for old, new in zip(before, path, strict=False) if new not in (old, BLANK)]
        wrong += _distance(read, right)
    return min(wrong / labels.numel(), 1.0)


def _distance(one: list[int], other: list[int]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        above, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def _data() -> Split:
    plain = digits(scaled=False)
    random = torch.Generator().manual_seed(0)

    def strings(images: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(labels), (count, LENGTH), generator=random)
        beside = (images[rows] / 16).view(count, LENGTH, 8, 8).transpose(1, 2)
        return beside.reshape(count, 1, 8, 8 * LENGTH), labels[rows]

    return Split(
        *strings(plain.inputs, plain.targets, 4000),
        *strings(plain.valid_inputs, plain.valid_targets, 300),
    )


def train(run: Run) -> float:
    """Train once; return the share of letters that are wrong."""
    torch.manual_seed(run.seed)
    data = _data()
    model = Net(run)
    steps = 180
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loop = Loop(
        model=model,
        criterion=Alignment(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, steps),
        steps=steps,
        save_interval=5,
        eval_every=60,
        clip=5.0,
    )
    valid = [
        (data.valid_inputs[rows], data.valid_targets[rows]) for rows in torch.arange(300).split(100)
    ]
    return fit(run, loop, batches_of(data, 16, run.seed), valid, misread)


PROGRAM = Program(
    model="CNN, BatchNorm, bidirectional GRU, CTC loss, hard swish, Adam, clipped gradients",
    data="scikit-learn digits, three side by side",
    measure="edit distance per digit",
    train=train,
    faults={
        "double_activation": "softmax ahead of the logarithm of a softmax",
        "frozen_layer": "features of the convolutions are detached",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
    },
)
