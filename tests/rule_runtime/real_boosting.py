"""Trials that the real hook for XGBoost writes, on data that scikit-learn ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from sklearn import datasets

from hook_layer import xgboost as smx

DATA = {"binary": "breast_cancer", "multiclass": "digits", "regression": "diabetes"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "binary": {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"]},
    "multiclass": {"objective": "multi:softprob", "num_class": 10, "eval_metric": "mlogloss"},
    "regression": {"objective": "reg:squarederror"},
}
ROUNDS = 6
SAVED_ROUNDS = [0, 2, 4]


def validation_data(kind: str) -> tuple[xgboost.DMatrix, xgboost.DMatrix, Any]:
    """Return training data, validation data, and the labels of the latter."""
    data = getattr(datasets, f"load_{DATA[kind]}")()
    order = np.random.default_rng(0).permutation(len(data.target))[:600]
    features, labels = data.data[order], data.target[order]
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    half = len(order) // 2
    train = xgboost.DMatrix(features[:half], labels[:half], feature_names=names)
    validation = xgboost.DMatrix(features[half:], labels[half:], feature_names=names)
    return train, validation, labels[half:]


def write_boosted_trial(root: Path, kind: str, **changes: Any) -> Any:
    """Train with everything that a report is about; every second round is saved."""
    train, validation, _ = validation_data(kind)
    parameters = {"nthread": 1, "max_depth": 2, "eta": 0.4, **PARAMETERS[kind]}
    arguments: dict[str, Any] = {
        "include_collections": [
            "metrics",
            "feature_importance",
            "predictions",
            "labels",
            "hyperparameters",
            "average_shap",
            "full_shap",
        ],
        "include_regex": "^average_shap/bias$",
        "hyperparameters": parameters,
        "train_data": train,
        "validation_data": validation,
        "save_config": smx.SaveConfig(save_interval=2),
        **changes,
    }
    hook = smx.Hook(root, **arguments)
    try:
        return xgboost.train(
            parameters,
            train,
            ROUNDS,
            evals=[(train, "train"), (validation, "validation")],
            callbacks=[hook],
            verbose_eval=False,
        )
    finally:
        smx.del_hook()
