"""Real data that scikit-learn ships, and trainings of it with a hook."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from sklearn import datasets

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook, SaveConfig

EVERY_ROUND = SaveConfig(save_interval=1)
REGRESSION = {"nthread": 1, "max_depth": 3, "eta": 0.5}
KINDS = ("weight", "gain", "cover", "total_gain", "total_cover")
COMPUTED = ["predictions", "labels", "feature_importance", "average_shap", "full_shap", "trees"]


class Script(xgboost.callback.TrainingCallback):
    """What a training script does itself before and after a round; it receives model and round."""

    def __init__(
        self,
        before: Callable[[Any, int], object] | None = None,
        after: Callable[[Any, int], object] | None = None,
    ) -> None:
        self.before, self.after = before, after

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        del evals_log
        if self.before is not None:
            self.before(model, epoch)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        del evals_log
        if self.after is not None:
            self.after(model, epoch)
        return False


@cache
def columns(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    data = getattr(datasets, f"load_{name}")()
    return data.data, data.target


def matrix(name: str = "diabetes", rows: slice = slice(None), **arguments: Any) -> xgboost.DMatrix:
    features, labels = columns(name)
    return xgboost.DMatrix(features[rows], labels[rows], **arguments)


def make_hook(trial: WrittenTrial, *collections: str, **arguments: Any) -> Hook:
    arguments.setdefault("save_config", EVERY_ROUND)
    return Hook(trial.uri, include_collections=list(collections), **arguments)


def train(
    *callbacks: xgboost.callback.TrainingCallback,
    data: xgboost.DMatrix | None = None,
    rounds: int = 4,
    parameters: dict[str, Any] | None = None,
    **arguments: Any,
) -> xgboost.Booster:
    data = matrix() if data is None else data
    arguments.setdefault("evals", [(data, "train")])
    return xgboost.train(
        {k: v for k, v in {**REGRESSION, **(parameters or {})}.items() if v is not None},
        data,
        rounds,
        callbacks=list(callbacks),
        verbose_eval=False,
        **arguments,
    )


def cut(model: xgboost.Booster, rounds: int) -> xgboost.Booster:
    """Return the model as it was after so many rounds."""
    return model[:rounds]


def same(found: NDArray[Any], expected: Any) -> bool:
    expected = np.asarray(expected)
    has_nan = expected.dtype.kind == "f"
    return found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=has_nan)
