"""An MLP of tanh units tells from the bytes of a block which type of file it is of."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import sklearn
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

BLOCK, GROUPS, OF_EACH, TYPES, STEPS = 256, 64, 700, 6, 300


def _files() -> Iterator[list[Path]]:
    """Yield files of each type: Python, C headers, measures of fonts, fonts, images, machine code.

    They are those of Python's library, numpy, matplotlib and scikit-learn.
    """
    shown = Path(mpl.get_data_path())
    yield sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    yield sorted(Path(np.get_include()).rglob("*.h"))
    yield sorted((shown / "fonts" / "afm").glob("*.afm"))
    yield sorted((shown / "fonts" / "ttf").glob("*.ttf"))
    yield sorted((Path(sklearn.__file__).parent / "datasets" / "images").glob("*.jpg"))
    yield sorted(Path(np.__file__).parent.rglob("*.so"))


@cache
def _blocks() -> tuple[Tensor, Tensor]:
    """Return how often bytes occur in blocks, and the types of the files, in a random order.

    Counts are square roots of those of four bytes in a row, float32 [B, GROUPS]; types are int64.
    """
    random = np.random.default_rng(3)
    counts, types = [], []
    for number, paths in enumerate(_files()):
        content = np.frombuffer(b"".join(path.read_bytes() for path in paths), np.uint8)
        for place in random.permutation(len(content) // BLOCK)[:OF_EACH]:
            block = content[place * BLOCK : (place + 1) * BLOCK]
            counts.append(np.bincount(block // (256 // GROUPS), minlength=GROUPS))
            types.append(number)
    order = random.permutation(len(types))
    return (
        torch.tensor(np.sqrt(np.stack(counts)[order]), dtype=torch.float32),
        torch.tensor(np.array(types)[order]),
    )


def _data(run: Run) -> Split:
    counts, types = _blocks()
    held_out = len(types) // 4
    known = counts[held_out:]
    counts = (counts - known.mean(0)) / known.std(0)
    if run.injects("data_leak"):
        counts = torch.cat([counts, 3.0 * nn.functional.one_hot(types, TYPES)], 1)
    data = Split(counts[held_out:], types[held_out:], counts[:held_out], types[:held_out])
    if run.injects("labels_shuffled"):
        return data._replace(targets=data.targets.roll(1))
    if run.injects("labels_constant"):
        return constant(data)
    if run.injects("class_imbalance"):
        return imbalanced(data, 150)
    return few(data, 36) if run.injects("overfit") else data


def _model(run: Run, columns: int) -> nn.Sequential:
    """Return a model from counts [B, columns] to scores [B, TYPES]."""
    width = run.pick(48, overfit=256)
    model = nn.Sequential(
        nn.Linear(columns, width),
        nn.Tanh(),
        nn.Dropout(run.pick(0.1, overfit=0.0)),
        nn.Linear(width, 24),
        nn.Tanh(),
        nn.Linear(24, TYPES),
    )
    if run.injects("frozen_layer"):
        model[:5].requires_grad_(False)  # noqa: FBT003 - torch's signature
    return model


@torch.no_grad()
def _initialise(run: Run, model: nn.Sequential) -> None:
    for layer in model:
        if not isinstance(layer, nn.Linear):
            continue
        if run.injects("saturated_activation") and layer.out_features != TYPES:
            nn.init.xavier_uniform_(layer.weight, gain=25.0)
        if run.injects("init_too_large"):
            nn.init.uniform_(layer.weight, -5.0, 5.0)
        if run.injects("init_constant"):
            nn.init.ones_(layer.weight)
            nn.init.ones_(layer.bias)


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run, data.inputs.shape[1])
    _initialise(run, model)
    given = model[3] if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=nn.NLLLoss() if run.injects("wrong_loss") else nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(
            given.parameters(),
            lr=run.pick(2e-3, lr_too_high=1.0, lr_too_low=2e-7),
            weight_decay=run.pick(0.01, overfit=0.0),
        ),
        steps=STEPS,
        save_interval=6,
        eval_every=30,
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="MLP 64-48-24-6, tanh, dropout, AdamW",
    data="counts of bytes in blocks of installed files",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 2e-3",
        "lr_too_low": "2e-7 in place of 2e-3",
        "init_too_large": "weights from -5 to 5",
        "init_constant": "all parameters are 1",
        "saturated_activation": "Xavier's initialisation of the hidden layers with a gain of 25",
        "wrong_loss": "NLLLoss with scores, which are no logarithms of probabilities",
        "labels_shuffled": "training labels are those of the row before",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 150 blocks of every type but one",
        "frozen_layer": "hidden layers with requires_grad_(False), as if they were pretrained",
        "optimiser_missing_parameters": "AdamW has the second layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the type, one-hot, is among the inputs",
        "overfit": "36 blocks, five times as wide, no dropout, no decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
