"""A small student learns digits from a frozen teacher."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split, digits
from benchmarks.detection.injecting import few, filled_, imbalanced, scaled_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, batches_of, classes, error_rate, fit

TEMPERATURE = 3.0


def taught(data: Split) -> nn.Module:
    """Return a teacher that was trained on all data for training."""
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(1000)
        teacher = nn.Sequential(
            nn.Linear(64, 160), nn.ReLU(), nn.Dropout(0.3), nn.Linear(160, 96), nn.ReLU(),
            nn.Linear(96, 10),
        )  # fmt: skip
        optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
        batches = batches_of(data, 64, 1000)
        for _ in range(300):
            inputs, targets = next(batches)
            optimizer.zero_grad()
            loss = functional.cross_entropy(teacher(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return teacher.eval().requires_grad_(requires_grad=False)


class Student(nn.Module):
    """A small convolutional network, and the teacher that it looks at.

    Args:
        run: What is injected.
        teacher: Is kept as it is.
    """

    def __init__(self, run: Run, teacher: nn.Module) -> None:
        super().__init__()
        self.run = run
        self.teacher = teacher
        is_flat = run.injects("saturated_activation")
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.act1 = nn.Tanh() if is_flat else nn.LeakyReLU(0.1)
        self.hidden = nn.Linear(6 * 16, 24)
        self.act2 = nn.Tanh() if is_flat else nn.LeakyReLU(0.1)
        self.pool = nn.AvgPool2d(2)
        self.out = nn.Linear(24, 10)
        if run.injects("init_constant"):
            filled_([self.conv, self.hidden, self.out], 0.0)
        if is_flat:
            scaled_([self.conv, self.hidden], 40.0)

    def train(self, mode: bool = True) -> Student:
        """Set the mode of the student; the teacher has no dropout in any."""
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of student and teacher, [B, 20], of images [B, 64]."""
        x = self.pool(self.act1(self.conv(images.view(-1, 1, 8, 8))))
        x = self.act2(self.hidden(x.flatten(1)))
        if self.run.injects("frozen_layer"):
            x = x.detach()
        return torch.cat([self.out(x), self.teacher(images)], 1)


class Distilling(nn.Module):
    """How far the student is from the teacher, and from the labels.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over outputs [B, 20] and labels [B]."""
        own, other = outputs[:, :10], outputs[:, 10:]
        soft = (other / TEMPERATURE).softmax(1)
        logarithms = (own / TEMPERATURE).log_softmax(1)
        if self.run.injects("double_activation"):
            own = own.softmax(1)
            logarithms = (own / TEMPERATURE).log_softmax(1)
        if self.run.injects("wrong_loss"):
            # kl_div asks for logarithms of the first, not of the second.
            soft, logarithms = logarithms, soft
        distance = functional.kl_div(logarithms, soft, reduction="batchmean")
        if self.run.injects("wrong_loss"):
            return TEMPERATURE**2 * distance
        return 0.3 * functional.cross_entropy(own, labels) + 0.7 * TEMPERATURE**2 * distance


def _noisy(batches: Batches, seed: int) -> Batches:
    random = torch.Generator().manual_seed(seed)
    for images, labels in batches:
        yield images + 0.1 * torch.randn(images.shape, generator=random), labels


def train(run: Run) -> float:
    """Train once; return the student's error rate."""
    data = digits()
    teacher = taught(data)
    torch.manual_seed(run.seed)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 80)
    if run.injects("overfit"):
        data = few(data, 40)
    model = Student(run, teacher)
    own = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loop = Loop(
        model=model,
        criterion=Distilling(run),
        optimizer=torch.optim.Adam(own, lr=run.pick(4e-3, lr_too_high=2.0, lr_too_low=2e-6)),
        steps=240,
        predict=lambda outputs: classes(outputs[:, :10]),
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]

    def error(outputs: Tensor, targets: Tensor) -> float:
        return error_rate(outputs[:, :10], targets)

    return fit(run, loop, _noisy(batches_of(data, 64, run.seed), run.seed), valid, error)


PROGRAM = Program(
    model="CNN, LeakyReLU, taught by a frozen MLP: KL divergence and cross entropy, Adam",
    data="scikit-learn digits with a little noise",
    measure="error rate",
    train=train,
    faults={
        "saturated_activation": "tanh for LeakyReLU, weights ahead of it 40 times too large",
        "wrong_loss": "kl_div's arguments are the wrong way round: it gets probabilities for "
        "logarithms and logarithms for probabilities",
        "double_activation": "the student's scores go through softmax ahead of log softmax",
        "frozen_layer": "features are detached ahead of the student's last layer",
        "init_constant": "all weights of the student are zero",
        "lr_too_low": "learning rate 0.000002 for 0.004",
        "lr_too_high": "learning rate 2 for 0.004",
        "class_imbalance": "one in 80 images of every class but one",
        "overfit": "40 images",
    },
)
