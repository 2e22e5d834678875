"""A residual network tells kinds of sounds apart by their spectrograms, with mixup."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, batches_of, fit

KINDS, SAMPLES = 6, 1536


def sounds(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return spectrograms, float32 [count, 1, 16, 23], and kinds, int64 [count].

    Kinds are: rising, falling, steady, vibrato, tremolo, two tones.
    """
    random = np.random.default_rng(seed)
    kinds = random.integers(0, KINDS, count)
    time = np.linspace(0, 1, SAMPLES)
    pitch = random.uniform(90, 260, (count, 1)) * np.ones((1, SAMPLES))
    slope = random.uniform(60, 160, (count, 1)) * (time - 0.5)
    beat = np.sin(2 * np.pi * (random.uniform(3, 6, (count, 1)) * time + random.random((count, 1))))
    kind = kinds[:, None]
    pitch += (kind == 0) * slope - (kind == 1) * slope + (kind == 3) * 40 * beat  # noqa: PLR2004
    loud = np.where(kind == 4, 0.55 + 0.45 * beat, 1.0)  # noqa: PLR2004
    sound = loud * np.sin(2 * np.pi * np.cumsum(pitch, 1) / SAMPLES)
    second = np.sin(2 * np.pi * np.cumsum(pitch * 1.35, 1) / SAMPLES)
    sound = np.where(kind == 5, 0.7 * (sound + second), sound)  # noqa: PLR2004
    sound += random.uniform(1.5, 3.0, (count, 1)) * random.normal(size=sound.shape)
    parts = np.lib.stride_tricks.sliding_window_view(sound, 128, 1)[:, ::64]
    power = np.abs(np.fft.rfft(parts * np.hanning(128)))[..., 4:36] ** 2
    log = np.log(power.reshape(count, -1, 16, 2).sum(3) + 1e-3)
    images = torch.tensor(log, dtype=torch.float32).transpose(1, 2)[:, None]
    return images, torch.tensor(kinds)


class Residual(nn.Module):
    """Two convolutions with BatchNorm beside a way straight on.

    Args:
        width: Channels.
        act: What makes the activation.
    """

    def __init__(self, width: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.act1, self.act2 = act(), act()

    def forward(self, x: Tensor) -> Tensor:
        """Return images [B, channels, H, W] after the block."""
        found = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        after: Tensor = self.act2(x + found)
        return after


class ResNet(nn.Module):
    """A convolution, two residual blocks, the mean, scores.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        act: type[nn.Module] = nn.Identity if run.injects("no_activation") else nn.ReLU
        self.stem = nn.Conv2d(1, 10, 3, stride=2, padding=1, bias=False)
        self.norm, self.act = nn.BatchNorm2d(10), act()
        self.blocks = nn.Sequential(Residual(10, act), Residual(10, act))
        self.scores = nn.Linear(10 * 8, KINDS)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B, 6] of spectrograms [B, 1, 16, 23]."""
        x = self.blocks(self.act(self.norm(self.stem(images))))
        x = functional.adaptive_avg_pool2d(x, (4, 2)).flatten(1)
        scores: Tensor = self.scores(x)
        if self.run.injects("double_activation"):
            return scores.log_softmax(1).exp()
        return scores


class Soft(nn.Module):
    """Cross entropy with shares of classes.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, shares: Tensor) -> Tensor:
        """Return the mean over scores and shares [B, 6]."""
        if self.run.injects("wrong_loss"):
            return functional.l1_loss(
                scores.argmax(1) + 0 * scores.sum(1), shares.argmax(1).float()
            )
        return functional.cross_entropy(scores, shares)


def mixed(batches: Batches, seed: int) -> Batches:
    """Yield images and shares of classes, each image mixed with another of its batch."""
    random = np.random.default_rng(seed)
    for images, labels in batches:
        own = float(random.beta(0.3, 0.3))
        other = torch.from_numpy(random.permutation(len(images)))
        shares = functional.one_hot(labels, KINDS).float()
        yield (
            own * images + (1 - own) * images[other],
            own * shares + (1 - own) * shares[other],
        )


def _data(run: Run) -> Split:
    data = Split(*sounds(1500, 0), *sounds(400, 1))
    mean, std = data.inputs.mean(), data.inputs.std()
    data = data._replace(
        inputs=(data.inputs - mean) / std, valid_inputs=(data.valid_inputs - mean) / std
    )
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 60)
    return few(data, 48) if run.injects("overfit") else data


def missed(scores: Tensor, shares: Tensor) -> float:
    """Return the share of images whose most likely class is another one."""
    if not scores.isfinite().all():
        return 1.0
    return float((scores.argmax(1) != shares.argmax(1)).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = ResNet(run)
    given = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        given = [*model.stem.parameters(), *model.norm.parameters()]
    rate = run.pick(0.04, lr_too_high=20.0)
    optimizer = torch.optim.SGD(given, lr=rate, momentum=0.9, weight_decay=5e-4)
    loop = Loop(
        model=model,
        criterion=Soft(run),
        optimizer=optimizer,
        steps=160,
        save_interval=4,
        eval_every=20,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 160),
        is_functional=True,
    )
    batches = batches_of(data, 48, run.seed)
    valid = [(data.valid_inputs, functional.one_hot(data.valid_targets, KINDS).float())]
    is_plain = run.injects("overfit")
    if is_plain:
        batches = ((x, functional.one_hot(y, KINDS).float()) for x, y in batches)
    return fit(run, loop, batches if is_plain else mixed(batches, run.seed), valid, missed)


PROGRAM = Program(
    model="residual network, BatchNorm, ReLU, mixup, SGD with momentum, cosine schedule",
    data="spectrograms of six kinds of sounds, simulated",
    measure="error rate",
    train=train,
    faults={
        "labels_shuffled": "kinds are those of other sounds",
        "labels_constant": "all sounds for training are of one kind",
        "class_imbalance": "one in 60 sounds of every kind but one",
        "double_activation": "softmax in the model, ahead of cross entropy of scores",
        "wrong_loss": "squared distance of the largest score (not its place) to the class's number",
        "no_activation": "no ReLU anywhere: the network is linear",
        "optimiser_missing_parameters": "the optimiser has the first convolution and its norm",
        "lr_too_high": "learning rate 20 for 0.04",
        "overfit": "48 sounds, no mixup",
    },
)
