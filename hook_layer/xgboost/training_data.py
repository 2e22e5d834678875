"""Labels and weights of the rows that XGBoost trains on, which are saved once per training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster, DMatrix

from hook_layer.xgboost.distributed import rank_and_size
from hook_layer.xgboost.unavailable import UnavailableError

__all__ = ["LABEL", "TRAINING_DATA", "WEIGHT", "TrainingData"]

TRAINING_DATA: Final = "training_data"
"""The collection. Its names match no expression for labels, predictions or weights of a model."""
LABEL: Final = f"{TRAINING_DATA}/Label"
WEIGHT: Final = f"{TRAINING_DATA}/Weight"

_ARGUMENTS: Final = ("dtrain", "obj", "params")
_MAX_ELEMENTS: Final = 1 << 18
"""Maximum number of saved labels, 1 MiB: shares of classes have an error of 0.1 % at most."""
_CLASSIFYING: Final = ("binary:", "multi:")
"""Objectives whose labels are classes."""


class TrainingData:
    """The labelled rows of the current training."""

    def __init__(self) -> None:
        self._arguments: Mapping[str, Any] = {}
        self._is_saved = False

    def begin(self, arguments: Mapping[str, Any]) -> None:
        """Use the rows of another training.

        Args:
            arguments: Arguments of `xgboost.train` or `xgboost.cv`; empty if they are unknown.
        """
        self._arguments = {name: arguments.get(name) for name in _ARGUMENTS}
        self._is_saved = False

    def release(self) -> None:
        """Forget the rows, which may be large."""
        self._arguments = {}

    def tensors(self, model: Booster | None) -> dict[str, NDArray[Any]]:
        """Return labels and, unless all are equal, weights; nothing if they were saved before.

        Labels are [rows] or [rows, targets]. Those of a classifying objective are integers. Weights
        [rows] include `scale_pos_weight`. Of large data the rows are evenly spaced.

        Args:
            model: The booster; None if there is not exactly one.

        Raises:
            UnavailableError: The labels of all rows cannot be had.
        """
        if self._is_saved:
            return {}
        data = self._data()
        labels = data.get_label()
        if not labels.size:
            raise UnavailableError("the training data has no labels")
        labels = labels.reshape(data.num_row(), -1)
        is_custom = self._arguments.get("obj") is not None
        if is_custom and (labels == labels[0]).all():
            raise UnavailableError("all labels are equal, and obj= may not use them")
        objective = self._objective(model)
        name = "" if is_custom else objective.get("name", "")
        rows = _evenly_spaced(labels)
        weights = _weights(data, labels[:, 0], objective, rows)
        labels = labels[rows, 0] if labels.shape[1] == 1 else labels[rows]
        found = {LABEL: _classes(labels) if name.startswith(_CLASSIFYING) else labels}
        if weights.size and (weights != weights[0]).any():
            found[WEIGHT] = weights
        self._is_saved = True
        return found

    def _data(self) -> DMatrix:
        data = self._arguments.get("dtrain")
        if not isinstance(data, DMatrix):
            raise UnavailableError(
                "the training data is unknown: train with xgboost.train, xgboost.cv or `fit`"
            )
        if rank_and_size()[1] > 1:
            raise UnavailableError("each rank has only a part of the rows")
        return data

    def _objective(self, model: Booster | None) -> Mapping[str, Any]:
        """Return the configuration of the objective: its name and parameters."""
        if model is not None:
            found: Mapping[str, Any] = json.loads(model.save_config())["learner"]["objective"]
            return found
        given = dict(self._arguments.get("params") or {})
        scale = {"scale_pos_weight": given.get("scale_pos_weight", 1)}
        return {"name": str(given.get("objective", "")), "reg_loss_param": scale}


def _evenly_spaced(labels: NDArray[Any]) -> NDArray[np.intp]:
    """Return the rows to save of labels [rows, targets], with the smallest and largest label."""
    num_rows, num_targets = labels.shape
    most = max(_MAX_ELEMENTS // num_targets, 1)
    if num_rows <= most:
        return np.arange(num_rows)
    rows = np.linspace(0, num_rows - 1, most).astype(np.intp)
    for row in (labels.argmin() // num_targets, labels.argmax() // num_targets):
        rows[np.searchsorted(rows, row, side="right") - 1] = row
    return rows


def _classes(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels as small integers; as they are if some are no integers from 0 on."""
    low, high = float(labels.min()), float(labels.max())
    if low < 0 or (labels != np.floor(labels)).any():
        return labels
    return labels.astype(np.min_scalar_type(int(high)))


def _weights(
    data: DMatrix, labels: NDArray[Any], objective: Mapping[str, Any], rows: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Return the weight of some rows; empty if rows have none of their own."""
    weights = data.get_weight()
    scale = float(objective.get("reg_loss_param", {}).get("scale_pos_weight", 1))
    if not weights.size:
        weights = np.ones(labels.size if scale != 1 else 0, np.float32)
    if weights.size != labels.size:  # those of a ranking are of groups
        return weights[:0]
    scaled: NDArray[np.float64] = np.where(labels[rows] == 1, scale, 1) * weights[rows]
    return scaled.astype(np.float32)
