"""Reads importances and SHAP values that XGBoost's hook saved.

Shape legend: N = rows of the data, F = features, K = classes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.tidy_table import VALUE, tidy_table

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["IMPORTANCE_TYPES", "numbers_at", "shap_values"]

IMPORTANCE_TYPES: Final = ("weight", "gain", "cover", "total_gain", "total_cover")
"""Number of splits; mean gain and cover of a split; total gain and cover."""

_SHAP: Final = "full_shap/"
_AVERAGE: Final = "average_shap/"
_BIAS: Final = "bias"
_UNNAMED: Final = re.compile(r"f\d+")
_NUM_AXES_OF_CLASSES: Final = 3


def numbers_at(trial: Trial, prefix: str, step: int | None = None) -> tuple[int, dict[str, float]]:
    """Return a step, and the values of its one-element tensors by name without the prefix.

    Args:
        trial: The trial.
        prefix: Prefix of the tensors' names.
        step: The global step; None for the last one with such a tensor.

    Raises:
        ValueError: If there is no such tensor.
    """
    file = _file_with(trial, prefix, step)
    names = [name for name in trial.tensor_names() if name.startswith(prefix)]
    table = tidy_table(trial.store, [file], names, (VALUE,))
    pairs = zip(table.tensors, table.columns[VALUE], strict=True)
    numbers = {table.tensor_names[at][len(prefix) :]: float(number) for at, number in pairs}
    return file.step, {name: number for name, number in numbers.items() if np.isfinite(number)}


def shap_values(
    trial: Trial, step: int | None = None, class_index: int = 0
) -> tuple[int, list[str], npt.NDArray[np.float64], int]:
    """Return a step, the features' names [F], their SHAP values [N, F], and K.

    Args:
        trial: The trial.
        step: The global step; None for the last one with SHAP values.
        class_index: Index of the class, if the model has several.

    Raises:
        ValueError: If no SHAP values were saved, or there is no such class.
    """
    file = _file_with(trial, _SHAP, step)
    saved = _names_in(file, _SHAP)
    # Each name has the same matrix [N, F + 1] or [N, K, F + 1] with the bias last.
    matrix = np.asarray(trial.tensor(_SHAP + saved[0]).value(file.step, worker=file.worker))
    num_classes = 1
    if matrix.ndim == _NUM_AXES_OF_CLASSES:
        num_classes = matrix.shape[1]
        if not 0 <= class_index < matrix.shape[1]:
            raise ValueError(f"there is no class {class_index} among {matrix.shape[1]}")
        matrix = matrix[:, class_index]
    if matrix.ndim != _NUM_AXES_OF_CLASSES - 1 or not matrix.size:
        raise ValueError(f"{_SHAP}{saved[0]} has the shape {list(matrix.shape)}, not [rows, ...]")
    count = matrix.shape[1] - 1
    names = _feature_names(file, saved, count)
    return file.step, names, matrix[:, :count].astype(np.float64), num_classes


def _feature_names(file: StepFile, saved: list[str], count: int) -> list[str]:
    """Return the known names of features in the order of the columns."""
    for names in (saved, _names_in(file, _AVERAGE)):
        features = names[:-1] if names[-1:] == [_BIAS] else names
        if len(features) == count:
            return features
    if all(_UNNAMED.fullmatch(name) for name in saved if name != _BIAS):
        return [f"f{at}" for at in range(count)]
    return [f"feature {at}" for at in range(count)]


def _file_with(trial: Trial, prefix: str, step: int | None) -> StepFile:
    files = [file for file in trial.step_files() if _names_in(file, prefix)]
    if step is not None:
        files = [file for file in files if file.step == step]
    if not files:
        where = "so far" if step is None else f"at step {step}"
        collection = prefix.partition("/")[0]
        raise ValueError(
            f"no tensor {prefix}... was saved {where}; the collection {collection!r} saves them"
        )
    return min(files, key=lambda file: (-file.step, file.worker))


def _names_in(file: StepFile, prefix: str) -> list[str]:
    """Return the names with a prefix, without it, in the order of writing."""
    locations = () if file.index is None else file.index.locations
    return [row.name[len(prefix) :] for row in locations if row.name.startswith(prefix)]
