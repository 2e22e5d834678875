"""A recurrent network of the plain kind follows outlines and tells the letters apart."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS = "CFLTVXZ"
POINTS, UNITS = 20, 48
HELD_OUT = 420


class Net(nn.Module):
    """A recurrent layer, and two linear layers on its last state.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        kind = run.pick("tanh", exploding_rnn="relu")
        self.rnn = nn.RNN(2, UNITS, 1, kind, batch_first=True)
        self.fc1 = nn.Linear(UNITS, 32)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(32, len(LETTERS))

    def forward(self, outlines: Tensor) -> Tensor:
        """Return scores [B, letters] of outlines [B, POINTS, 2]."""
        last = self.rnn(outlines)[0][:, -1]
        if self.run.injects("frozen_layer"):
            last = last.detach()
        scores: Tensor = self.fc2(self.act(self.fc1(last)))
        return scores


@cache
def _outlines() -> tuple[Tensor, Tensor]:
    """Return outlines [B, POINTS, 2] in thousandths of the size, and letters, int64 [B]."""
    random = np.random.default_rng(0)
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    names = [path for path in sorted(folder.glob("DejaVuS*.ttf")) if "Display" not in path.name]
    names += [
        folder / f"{name}.ttf" for name in ("STIXGeneral", "STIXGeneralBol", "cmr10", "cmb10")
    ]
    outlines, labels = [], []
    for path in names:
        font = FontProperties(fname=str(path))
        for label, letter in enumerate(LETTERS):
            path_of = TextPath((0, 0), letter, 1000, prop=font)
            polygon = max(
                [np.asarray(part, dtype=float) for part in path_of.to_polygons()], key=len
            )
            for _ in range(16):
                turn = np.eye(2) + random.normal(0, 0.1, (2, 2))
                outlines.append(_points(polygon @ turn) + random.normal(0, 10.0, (POINTS, 2)))
                labels.append(label)
    order = random.permutation(len(labels))
    made = torch.tensor(np.stack(outlines)[order], dtype=torch.float32)
    return made, torch.tensor(np.array(labels)[order])


def _points(polygon: np.ndarray) -> np.ndarray:
    """Return points [POINTS, 2] at equal distances on a polygon [corners, 2], from its left top."""
    polygon = polygon[:-1]
    first = int(np.argmin(polygon[:, 0] - polygon[:, 1]))
    polygon = np.concatenate([polygon[first:], polygon[: first + 1]])
    way = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(polygon, axis=0), axis=1))])
    at = np.linspace(0, way[-1], POINTS, endpoint=False)
    return np.stack([np.interp(at, way, polygon[:, axis]) for axis in (0, 1)], 1)


def _data(run: Run) -> Split:
    outlines, labels = _outlines()
    if not run.injects("missing_normalisation"):
        outlines = (outlines - outlines.mean((0, 1))) / outlines.std((0, 1))
    data = Split(outlines[HELD_OUT:], labels[HELD_OUT:], outlines[:HELD_OUT], labels[:HELD_OUT])
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return few(data, 21) if run.injects("overfit") else data


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    for parameter in model.parameters():
        if run.injects("init_constant"):
            nn.init.constant_(parameter, 0.0)
        if run.injects("init_too_large"):
            nn.init.normal_(parameter)
    of_rnn = dict(model.rnn.named_parameters())
    if run.injects("exploding_rnn"):
        nn.init.normal_(of_rnn["weight_hh_l0"], std=0.5)
    if run.injects("saturated_activation"):
        nn.init.uniform_(of_rnn["weight_ih_l0"], -30.0, 30.0)
    if run.injects("dead_relu"):
        nn.init.constant_(model.fc1.bias, -10.0)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    _initialise(run, model)
    given = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        given = [*model.fc1.parameters(), *model.fc2.parameters()]
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(given, lr=run.pick(2e-3, lr_too_high=0.5)),
        steps=350,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 210), torch.split(data.valid_targets, 210), strict=True)
    )
    return fit(run, loop, batches_of(data, 48, run.seed), valid, error_rate)


PROGRAM = Program(
    model="RNN, 48 tanh units, a hidden layer of ReLUs, Adam, clipped gradients",
    data="outlines of seven letters in fonts that come with matplotlib, 20 points each",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "0.5 in place of 2e-3",
        "init_too_large": "all parameters from a normal distribution of width 1",
        "init_constant": "all parameters are 0",
        "dead_relu": "biases of the hidden layer are -10",
        "saturated_activation": "weights from inputs to the recurrent layer uniform from -30 to 30",
        "missing_normalisation": "points in thousandths of the size of the letter",
        "wrong_loss": "NLLLoss of scores without log_softmax",
        "class_imbalance": "one in 60 rows of every class but one",
        "frozen_layer": "the last state is detached",
        "optimiser_missing_parameters": "Adam has the linear layers only",
        "exploding_rnn": "ReLU in place of tanh, recurrent weights of width 0.5, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "overfit": "21 rows",
        "stalled": "hangs after 60 % of the steps",
    },
)
