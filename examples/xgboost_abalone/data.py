"""The data of the example: Abalone where its file is given, else scikit-learn's diabetes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import xgboost
from sklearn.datasets import load_diabetes, load_svmlight_file

__all__ = ["load_channels", "load_table", "write_libsvm"]

_TARGET = "Rings"
_SEXES = {"M": 0.0, "F": 1.0, "I": 2.0}
_VALIDATION_SHARE = 5


def load_table(file: Path | None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return inputs [rows, features], targets [rows] and the features' names.

    Args:
        file: UCI's Abalone as CSV, with a header line; None: scikit-learn's diabetes.

    Raises:
        ValueError: The file has no column `Rings`.
    """
    if file is None:
        table = load_diabetes()
        return table.data, table.target, list(table.feature_names)
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    if not rows or _TARGET not in rows[0]:
        raise ValueError(f"{file} has no column {_TARGET}: give UCI's Abalone with a header line")
    names = [name for name in rows[0] if name != _TARGET]
    numbers = [
        [_SEXES.get(row[name]) or float(_number(row[name])) for name in names] for row in rows
    ]
    return np.array(numbers), np.array([float(row[_TARGET]) for row in rows]), names


def write_libsvm(folder: Path, file: Path | None) -> None:
    """Write the channels `train` and `validation` as libsvm files, as SageMaker gives them."""
    inputs, targets, _ = load_table(file)
    order = np.random.default_rng(0).permutation(len(targets))
    held_out = len(targets) // _VALIDATION_SHARE
    for channel, rows in (("validation", order[:held_out]), ("train", order[held_out:])):
        lines = [
            f"{target:g} " + " ".join(f"{at}:{number:g}" for at, number in enumerate(row))
            for row, target in zip(inputs[rows], targets[rows], strict=True)
        ]
        (folder / channel).mkdir(parents=True, exist_ok=True)
        (folder / channel / "data.libsvm").write_text("\n".join(lines) + "\n")


def load_channels(folder: Path) -> dict[str, xgboost.DMatrix]:
    """Return the data of the channels below a folder, by name."""
    return {
        channel: xgboost.DMatrix(*load_svmlight_file(str(folder / channel / "data.libsvm")))
        for channel in ("train", "validation")
    }


def _number(text: str) -> float:
    return _SEXES[text] if text in _SEXES else float(text)
