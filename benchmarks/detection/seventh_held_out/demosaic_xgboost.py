"""Trees fill in the green that a camera's sensor did not measure at a red pixel."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split, photo
from benchmarks.detection.injecting import constant, few, leaking
from benchmarks.detection.program import Program, Run

_ROWS: Final = 4000
_SIDE: Final = 5


@cache
def mosaic() -> Split:
    """Return what a sensor sees around red pixels, float32 [B, 25], and the green there [B].

    Both are from 0 to 255.
    """
    image = 255 * photo("china.jpg", 640)
    seen = image[..., 1].clone()
    seen[::2, ::2] = image[::2, ::2, 0]
    seen[1::2, 1::2] = image[1::2, 1::2, 2]
    random = np.random.default_rng(0)
    middle = _SIDE // 2
    wide = image.shape[1] // 2 - 4
    places = random.choice((image.shape[0] // 2 - 4) * wide, _ROWS, replace=False)
    tops, lefts = 4 + 2 * (places // wide), 4 + 2 * (places % wide)
    around = [
        seen[top - middle : top + middle + 1, left - middle : left + middle + 1].flatten()
        for top, left in zip(tops, lefts, strict=True)
    ]
    inputs, targets = torch.stack(around), image[tops, lefts, 1]
    held_out = _ROWS // 4
    return Split(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out])


def sorted_apart(split: Split) -> Split:
    """Return data whose training targets were sorted, the inputs not."""
    return split._replace(targets=split.targets.sort().values)


def train(run: Run) -> float:
    """Train once; return the unexplained share of variance."""
    data = mosaic()
    if run.injects("labels_shuffled"):
        data = sorted_apart(data)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("overfit"):
        data = few(data, 40)
    parameters: dict[str, Any] = {
        "objective": "reg:squarederror",
        "eval_metric": "rmse",
        "eta": run.pick(0.15, lr_too_low=1.5e-4, lr_too_high=3.0),
        "max_depth": run.pick(3, overfit=10),
        "min_child_weight": run.pick(5, overfit=0),
        "lambda": run.pick(1, overfit=0),
    }
    found = boost(run, data, parameters, 50)
    targets = data.valid_targets.numpy()
    return float(np.square(found - targets).mean() / targets.var())


PROGRAM = Program(
    model="XGBoost, regression, depth 3, 50 rounds",
    data="a photograph behind a Bayer mosaic: 25 pixels and the green of the middle one",
    measure="unexplained share of the variance, 1 - R2",
    train=train,
    faults={
        "lr_too_high": "eta 3 where 0.15 is right: 20 times, and every tree overshoots twofold",
        "lr_too_low": "eta 0.00015 where 0.15 is right: a thousand times",
        "labels_shuffled": "the training targets were sorted, the inputs not",
        "labels_constant": "all training targets are that of the first row",
        "overfit": "40 rows, depth 10, no regularisation",
        "data_leak": "the green of the middle pixel was left among the inputs",
        "stalled": "hangs after 60 % of the rounds",
    },
)
