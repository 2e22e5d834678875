"""Custom objective (squared log error) and metric with xgb.train on the diabetes table, in the manner of XGBoost's custom_rmsle demo."""

import sys

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def gradient(predt: np.ndarray, dtrain: xgb.DMatrix) -> np.ndarray:
    y = dtrain.get_label()
    return (np.log1p(predt) - np.log1p(y)) / (predt + 1)


def hessian(predt: np.ndarray, dtrain: xgb.DMatrix) -> np.ndarray:
    y = dtrain.get_label()
    return (-np.log1p(predt) + np.log1p(y) + 1) / np.power(predt + 1, 2)


def squared_log(predt: np.ndarray, dtrain: xgb.DMatrix):
    predt[predt < -1] = -1 + 1e-6
    # away from the optimum the second derivative is negative, so keep it positive
    return gradient(predt, dtrain), np.maximum(hessian(predt, dtrain), 1e-3)


def rmsle(predt: np.ndarray, dtrain: xgb.DMatrix):
    y = dtrain.get_label()
    predt[predt < -1] = -1 + 1e-6
    elements = np.power(np.log1p(y) - np.log1p(predt), 2)
    return "PyRMSLE", float(np.sqrt(np.sum(elements) / len(y)))


X, y = load_diabetes(return_X_y=True)
y = y / 50.0  # grams
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
dtrain, dtest = xgb.DMatrix(X_train, label=y_train), xgb.DMatrix(X_test, label=y_test)

results: dict = {}
booster = xgb.train(
    {
        "tree_method": "hist",
        "seed": seed,
        "disable_default_eval_metric": 1,
        "eta": 0.05,
        "max_depth": 2,
        "subsample": 0.8,
        "base_score": 2.0,
        "lambda": 0.2,
        "min_child_weight": 0.2,
        "nthread": 1,
    },
    dtrain=dtrain,
    num_boost_round=150,
    obj=squared_log,
    custom_metric=rmsle,
    evals=[(dtrain, "dtrain"), (dtest, "dtest")],
    evals_result=results,
    verbose_eval=25,
)
constant = np.expm1(np.log1p(y_train).mean())
print("constant guess:", rmsle(np.full(len(y_test), constant), dtest)[1])
print("final test RMSLE:", results["dtest"]["PyRMSLE"][-1])
