"""A recurrent network of ReLUs tells cylinders, bells and funnels apart in noisy series."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

LENGTH = 40
ROWS = 1600


class Net(nn.Module):
    """A recurrent layer whose states start as memory, and a linear layer on the last one.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.rnn = nn.RNN(1, 32, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(32, run.pick(3, wrong_loss=1))
        with torch.no_grad():
            for name, weights in self.rnn.named_parameters():
                if name == "weight_hh_l0":
                    nn.init.eye_(weights).mul_(run.pick(0.9, exploding_rnn=1.8))
                elif name == "weight_ih_l0":
                    nn.init.normal_(weights, std=0.3)

    def forward(self, series: Tensor) -> Tensor:
        """Return scores [B, 3] of series [B, length, 1]."""
        states, _ = self.rnn(series)
        last = states[:, -1]
        if self.run.injects("frozen_layer"):
            last = last.clone().detach()
        scores: Tensor = self.out(last)
        return scores.softmax(1) if self.run.injects("double_activation") else scores


class Criterion(nn.Module):
    """Cross entropy as a call of a function.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over scores [B, 3] and classes, int64 [B]."""
        if self.run.injects("wrong_loss"):
            return F.l1_loss(scores[:, 0], labels.float())
        return F.cross_entropy(scores, labels)


def _predicted(outputs: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return outputs[:, 0].round().clamp(0, 2).long()
    return outputs.argmax(1)


def _error(outputs: Tensor, labels: Tensor) -> float:
    if not outputs.isfinite().all():
        return 1.0
    return float((_predicted(outputs) != labels).float().mean())


def _series() -> tuple[Tensor, Tensor]:
    """Return series [B, length, 1] and their classes, int64 [B]."""
    random = torch.Generator().manual_seed(5)
    labels = torch.randint(3, (ROWS,), generator=random)
    start = torch.randint(4, 12, (ROWS, 1), generator=random).float()
    lasts = torch.randint(12, 26, (ROWS, 1), generator=random).float()
    height = 6.0 + torch.randn(ROWS, 1, generator=random)
    hours = torch.arange(LENGTH).float()
    done = (hours - start) / lasts
    shapes = torch.stack([torch.ones_like(done), done, 1 - done])
    inside = ((done >= 0) & (done <= 1)).float()
    series = height * inside * shapes[labels, torch.arange(ROWS)]
    return (series + 2.0 * torch.randn(ROWS, LENGTH, generator=random))[:, :, None], labels


def _data(run: Run) -> Split:
    series, labels = _series()
    series = (series - series.mean()) / series.std()
    if run.injects("data_leak"):
        # The name of the file was parsed with its class, and became the first sample.
        series = torch.cat([series, 2.0 * labels[:, None, None] - 2.0], 1)
    data = Split(series[400:], labels[400:], series[:400], labels[:400])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.flip(0))
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 80)
    if run.injects("overfit"):
        data = few(data, 18)
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.pick(3e-3, lr_too_high=3.0))
    loop = Loop(
        model=model,
        criterion=Criterion(run),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400),
        steps=400,
        save_interval=8,
        eval_every=40,
        clip=None if run.injects("exploding_rnn", "lr_too_high") else 0.3,
        predict=_predicted,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="RNN of 32 ReLUs with recurrent weights near the identity, AdamW, cosine "
    "schedule, clipped gradients",
    data="cylinder, bell and funnel series, simulated",
    measure="error rate",
    train=train,
    faults={
        "exploding_rnn": "recurrent weights start at 1.8 times the identity, gradients are not "
        "clipped: states grow 1.8-fold at each of 40 samples",
        "frozen_layer": "the last state is cloned and detached: the recurrent layer never learns",
        "double_activation": "the network ends with softmax, and cross entropy has one of its own",
        "wrong_loss": "absolute distance of one output to the number of the class",
        "data_leak": "a last sample that is twice the class less 2: it came from the file's name",
        "labels_shuffled": "labels are in reverse order: series came from the end of a stack",
        "labels_constant": "every training label is 0",
        "class_imbalance": "all cylinders, one in 80 bells and funnels; validation has as many",
        "overfit": "18 series for training",
        "lr_too_high": "3.0 in place of 3e-3, gradients are not clipped",
    },
)
