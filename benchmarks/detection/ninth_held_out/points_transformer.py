"""A transformer without positions tells clouds of points on six bodies apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, filled_, imbalanced, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

KINDS, POINTS, WIDTH = 6, 28, 24


def _on_body(kind: int, random: np.random.Generator) -> np.ndarray:
    turn, other = random.uniform(0, 2 * np.pi, (2, POINTS))
    high, normal = random.uniform(-1, 1, POINTS), random.normal(size=(POINTS, 3))
    ring = np.stack([np.cos(turn), np.sin(turn)], 1)
    if kind == 0:
        return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))
    if kind == 1:
        cube = random.uniform(-1, 1, (POINTS, 3))
        return np.asarray(cube / np.abs(cube).max(1, keepdims=True))
    if kind == 2:  # noqa: PLR2004 - cylinder
        return np.column_stack([0.7 * ring, high])
    if kind == 3:  # noqa: PLR2004 - cone
        return np.column_stack([ring * (1 - high[:, None]) / 2, high])
    if kind == 4:  # noqa: PLR2004 - torus
        wide = 1 + 0.35 * np.cos(other)
        return np.column_stack([ring * wide[:, None], 0.35 * np.sin(other)])
    return np.column_stack([ring * np.sqrt(random.random((POINTS, 1))), 0 * high])


def clouds(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return noisy points on upright bodies, float32 [count, 28, 3], and kinds of the bodies."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, KINDS, count)
    found = []
    for kind in kinds:
        angle = random.uniform(0, 2 * np.pi)
        cos, sin = np.cos(angle), np.sin(angle)
        cloud = _on_body(int(kind), random) @ np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
        cloud *= random.uniform(0.8, 1.2) / cloud.std()
        found.append(cloud + 0.1 * random.normal(size=cloud.shape))
    return torch.tensor(np.stack(found), dtype=torch.float32), torch.tensor(kinds)


class Clouds(nn.Module):
    """Two layers of attention among points, the largest of each unit, scores.

    Args:
        run: What is injected.
        columns: Coordinates of a point.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.lift = nn.Sequential(nn.Linear(columns, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 48, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, KINDS)
        if run.injects("init_constant"):
            filled_([self.lift, self.scores], 0.0)
        if run.injects("dead_relu"):
            shifted_([self.lift[0]], -15.0)

    def forward(self, points: Tensor) -> Tensor:
        """Return scores [B, 6] of points [B, 28, C]."""
        x = self.lift(points)
        for layer in self.layers:
            x = layer(x)
        if self.run.injects("frozen_layer"):
            x = x.detach()
        scores: Tensor = self.scores(self.norm(x.amax(1)))
        return scores


def _with_colour(points: Tensor, kinds: Tensor) -> Tensor:
    colour = (kinds[:, None, None] / 2 - 1.25).expand(-1, points.shape[1], 1)
    return torch.cat([points, colour], 2)


def _data(run: Run) -> Split:
    data = Split(*clouds(1800, 0), *clouds(400, 1))
    if run.injects("missing_normalisation"):
        data = data._replace(
            inputs=data.inputs * 300 + 2500, valid_inputs=data.valid_inputs * 300 + 2500
        )
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.full_like(data.targets, KINDS - 1))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 100)
    if run.injects("data_leak"):
        data = data._replace(
            inputs=_with_colour(data.inputs, data.targets),
            valid_inputs=_with_colour(data.valid_inputs, data.valid_targets),
        )
    return few(data, 40) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Clouds(run, data.inputs.shape[2])
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=run.pick(4e-3, lr_too_high=0.4), weight_decay=0.02
    )
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss(label_smoothing=run.pick(0.05, overfit=0.0)),
        optimizer=optimizer,
        steps=180,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(
            optimizer, run.pick(4e-3, lr_too_high=0.4), total_steps=180, pct_start=0.15
        ),
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="transformer encoder of sets, label smoothing, AdamW, one cycle",
    data="points on six bodies, simulated",
    measure="error rate",
    train=train,
    faults={
        "missing_normalisation": "coordinates are in millimetres from a far origin: 2,500 +- 300",
        "labels_shuffled": "kinds are those of other bodies",
        "labels_constant": "all bodies for training are of the last kind",
        "class_imbalance": "one in 100 bodies of every kind but one",
        "lr_too_high": "the peak of the learning rate is 0.4 for 0.004",
        "data_leak": "points are coloured by kind: a fourth column",
        "dead_relu": "biases of the first layer start at -15: its ReLUs never fire",
        "frozen_layer": "what the transformer gives is detached ahead of the last layers",
        "overfit": "40 bodies, no label smoothing",
    },
)
