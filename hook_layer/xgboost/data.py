"""The data that a hook for XGBoost explains and predicts."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xgboost import DMatrix
from xgboost.core import XGBoostError

from hook_layer.errors import HookConfigurationError, nearest
from hook_layer.install_hint import install_hint

__all__ = ["as_dmatrix", "first_rows"]

_CONTENT_TYPES: Final = {
    "csv": "csv",
    "text/csv": "csv",
    "libsvm": "libsvm",
    "text/libsvm": "libsvm",
    "text/x-libsvm": "libsvm",
}
_DELIMITERS: Final = ",;\t| "
_PATH_AND_TYPE: Final = 2
_LAST_COLUMN: Final = (1 << 31) - 2
_MOST_ELEMENTS: Final = 1 << 20


def as_dmatrix(name: str, value: object) -> DMatrix | None:
    """Return the data that an argument of a hook names.

    Args:
        name: Name of the argument.
        value: A DMatrix (or QuantileDMatrix), None, or a pair of a file and its content type: a CSV
            file without header whose first column is the label, or a file in LIBSVM's format.

    Raises:
        HookConfigurationError: It is something else, or the file cannot be read as that.
    """
    if value is None or isinstance(value, DMatrix):
        return value
    if (
        not isinstance(value, tuple)
        or len(value) != _PATH_AND_TYPE
        or not isinstance(value[0], str)
        or not isinstance(value[1], (str, type(None)))
    ):
        raise HookConfigurationError(
            f"{name}={value!r:.200} must be an xgboost.DMatrix, or a pair of a file and its "
            "content type, e.g. ('train.csv', 'csv')"
        )
    path = Path(value[0]).expanduser()
    content_type = (value[1] or "libsvm").lower()
    if content_type not in _CONTENT_TYPES:
        raise HookConfigurationError(
            f"{name} has the content type {value[1]!r}: {nearest(content_type, _CONTENT_TYPES)}"
        )
    if not path.is_file():
        raise HookConfigurationError(f"{name}: the file {path} does not exist")
    try:
        is_csv = _CONTENT_TYPES[content_type] == "csv"
        return _read_csv(path) if is_csv else _read_libsvm(path)
    except ImportError as error:
        raise HookConfigurationError(
            f"{name}: reading {path} needs pandas: {install_hint('xgboost')}"
        ) from error
    except (ValueError, IndexError, OSError, csv.Error) as error:
        raise HookConfigurationError(
            f"{name}: {path} cannot be read as {content_type}: {error}"
        ) from error


def first_rows(data: DMatrix) -> NDArray[np.float32] | None:
    """Return the features of the first rows [rows, features], of a million elements at most.

    What is missing is NaN. None if not even one row is so small, or data that are longer cannot be
    cut, as those in histograms or outside of the memory.
    """
    num_rows = min(data.num_row(), _MOST_ELEMENTS // max(data.num_col(), 1))
    if not num_rows:
        return None
    if num_rows < data.num_row():
        try:
            data = data.slice(np.arange(num_rows), allow_groups=True)
        except XGBoostError:
            return None
    content = data.get_data()
    found = np.full((num_rows, data.num_col()), np.nan, np.float32)
    found[np.repeat(np.arange(num_rows), np.diff(content.indptr)), content.indices] = content.data
    return found


def _read_csv(path: Path) -> DMatrix:
    import pandas as pd  # noqa: PLC0415 - may be missing

    with path.open(encoding="utf-8") as file:
        delimiter = csv.Sniffer().sniff(file.readline(), _DELIMITERS).delimiter
    table = pd.read_csv(path, header=None, sep=delimiter, dtype=np.float32).to_numpy()
    return DMatrix(table[:, 1:], table[:, 0])


def _read_libsvm(path: Path) -> DMatrix:
    with path.open(encoding="utf-8") as file:
        return _from_libsvm(line.partition("#")[0].split() for line in file)


def _from_libsvm(rows: Iterable[list[str]]) -> DMatrix:
    """Return the data of lines `label[:weight] [qid:number] column:value ...`."""
    # It comes with xgboost, and takes long to import.
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    labels: list[float] = []
    weights: list[float] = []
    groups: list[int] = []
    values: list[float] = []
    columns: list[int] = []
    ends = [0]
    for row in filter(None, rows):
        label, _, weight = row[0].partition(":")
        labels.append(float(label))
        weights.append(float(weight or 1))
        for field in row[1:]:
            column, _, value = field.partition(":")
            if column == "qid":
                groups.append(int(value))
            else:
                columns.append(int(column))
                values.append(float(value))
        ends.append(len(values))
    if not labels:
        raise ValueError("it is empty")
    if columns and not 0 <= min(columns) <= max(columns) <= _LAST_COLUMN:
        raise ValueError(f"it has columns from {min(columns)} to {max(columns)}")
    if groups and len(groups) != len(labels):
        raise ValueError("only some of its rows have a qid")
    content: Any = csr_matrix((np.array(values, np.float32), columns, ends))
    has_weights = any(weight != 1 for weight in weights)
    return DMatrix(content, labels, weight=weights if has_weights else None, qid=groups or None)
