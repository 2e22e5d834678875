"""A network learns from pairs of handwritten digits to put those of one kind near to each other."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, digits
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_PIXELS: Final = 64
_PLACES: Final = 16
_MARGIN: Final = 2.0


def pairs(images: Tensor, labels: Tensor, count: int, share: float) -> tuple[Tensor, Tensor]:
    """Return pairs, float32 [count, 128], and whether both are of one kind, float32 [count].

    Args:
        images: Images [B, 64].
        labels: Their kinds [B].
        count: How many pairs.
        share: Of the pairs that are of one kind.
    """
    random = torch.Generator().manual_seed(21)
    first = torch.randint(len(images), (count,), generator=random)
    is_same = torch.rand(count, generator=random) < share
    fits = (labels[first][:, None] == labels) == is_same[:, None]
    second = torch.multinomial(fits.float(), 1, generator=random)[:, 0]
    return torch.cat([images[first], images[second]], 1), is_same.float()


def prepared(run: Run) -> Split:
    """Return the data as the run gets it."""
    data = digits()
    share = run.pick(0.5, class_imbalance=0.004, labels_constant=1.0)
    inputs, same = pairs(data.inputs, data.targets, 4000, share)
    if run.injects("labels_shuffled"):  # pairs were shuffled when they were written
        inputs = inputs[torch.randperm(len(inputs))]
    return Split(inputs, same, *pairs(data.valid_inputs, data.valid_targets, 800, 0.5))


class Siamese(nn.Module):
    """One encoder for both images, and the distance of what it makes of them.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        hidden, deep = nn.Linear(_PIXELS, 96), nn.Linear(96, 64)
        if run.injects("dead_relu"):
            nn.init.normal_(deep.bias, -20.0, 0.1)
        layers = [hidden, nn.LeakyReLU(), deep, nn.ReLU(), nn.Linear(64, _PLACES)]
        if run.injects("no_activation"):
            layers = [hidden, deep, layers[-1]]
        self.encoder = nn.Sequential(*layers)

    def forward(self, both: Tensor) -> Tensor:
        """Return distances [B] of pairs [B, 128]."""
        first, second = self.encoder(both.view(-1, 2, _PIXELS)).unbind(1)
        squares: Tensor = (first - second).square().sum(1)
        return (squares + 1e-6).sqrt()


class Contrastive(nn.Module):
    """Squares of distances of the same kind, and of what others lack to the margin."""

    def forward(self, distances: Tensor, is_same: Tensor) -> Tensor:
        """Return the mean over distances [B] and whether the kind is the same [B]."""
        lacking = (_MARGIN - distances).clamp(min=0)
        return (is_same * distances.square() + (1 - is_same) * lacking.square()).mean()


class Reversed(Contrastive):
    """The same in the way of the first paper, where 1 is for pairs that differ."""

    def forward(self, distances: Tensor, is_same: Tensor) -> Tensor:
        """Return the mean as if `is_same` said that both differ."""
        return super().forward(distances, 1 - is_same)


def near(distances: Tensor) -> Tensor:
    """Return 1 for each pair that is nearer than half of the margin, else 0."""
    return (distances < _MARGIN / 2).float()


def mistaken(distances: Tensor, is_same: Tensor) -> float:
    """Return the share of pairs of which it is told wrongly whether they are of one kind."""
    return float((near(distances) != is_same).float().mean())


def train(run: Run) -> float:
    """Train once; return the share of pairs that are told wrongly."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = Siamese(run)
    trained = model.encoder.parameters()
    if run.injects("optimiser_missing_parameters"):  # biases and weights were to be in two groups
        trained = iter([p for p in model.encoder.parameters() if p.dim() == 1])
    loop = Loop(
        model=model,
        criterion=Reversed() if run.injects("wrong_loss") else Contrastive(),
        optimizer=torch.optim.Adam(trained, lr=run.pick(2e-3, lr_too_low=2e-7)),
        steps=350,
        predict=near,
    )
    valid = list(zip(data.valid_inputs.chunk(4), data.valid_targets.chunk(4), strict=True))
    return fit(run, loop, batches_of(data, 64, run.seed), valid, mistaken)


PROGRAM = Program(
    model="siamese MLP, LeakyReLU and ReLU, contrastive loss with a margin, Adam",
    data="pairs of scikit-learn's digits",
    measure="share of pairs that are told wrongly",
    train=train,
    faults={
        "wrong_loss": "the loss takes 1 for pairs that differ",
        "no_activation": "no activation between the linear layers",
        "dead_relu": "the bias ahead of the ReLU starts at about -20",
        "optimiser_missing_parameters": "of two groups only that of the biases was given",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "labels_shuffled": "pairs are in another order than what is said of them",
        "class_imbalance": "one pair in 250 is of one kind",
        "lr_too_low": "a learning rate of 0.0000002",
    },
)
