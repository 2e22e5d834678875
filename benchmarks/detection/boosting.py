"""Training with XGBoost, and the hook that watches it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xgboost
from torch import Tensor
from xgboost.callback import TrainingCallback

from benchmarks.detection.data import Split
from benchmarks.detection.hook_configuration import hook_configuration
from benchmarks.detection.program import STALLS_AT, Hanging, Run
from hook_layer.xgboost import Hook

__all__ = ["Predict", "boost"]

Predict = Callable[[Tensor], np.ndarray]


def boost(
    run: Run,
    split: Split,
    parameters: Mapping[str, Any],
    rounds: int,
    error: Callable[[Predict], float] | None = None,
) -> float:
    """Train, and return the error of the last model."""
    train = xgboost.DMatrix(split.inputs.numpy(), split.targets.numpy())
    valid = xgboost.DMatrix(split.valid_inputs.numpy(), split.valid_targets.numpy())
    parameters = {"nthread": 1, "seed": run.seed, "subsample": 0.9, **parameters}
    hook = Hook.create_from_json_file(hook_configuration(run, 2))
    hook.validation_data = valid
    hook.hyperparameters = parameters
    callbacks: list[TrainingCallback] = [hook]
    if run.injects("stalled"):
        callbacks.insert(0, _Hang(int(STALLS_AT * rounds)))
    try:
        booster = xgboost.train(
            parameters,
            train,
            rounds,
            evals=[(train, "train"), (valid, "validation")],
            callbacks=callbacks,
            verbose_eval=False,
        )
    finally:
        hook.close(end_of_training=not run.injects("stalled"))
    if error is None:
        return math.nan
    return error(lambda inputs: np.asarray(booster.predict(xgboost.DMatrix(inputs.numpy()))))


class _Hang(TrainingCallback):
    def __init__(self, at: int) -> None:
        self._at = at

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
        if epoch >= self._at:
            raise Hanging
        return False
