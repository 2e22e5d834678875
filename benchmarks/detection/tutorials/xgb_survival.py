"""Accelerated failure time with censored rows, labels given as bounds, and early stopping, in the manner of XGBoost's survival tutorial."""

import sys

import numpy as np
import xgboost as xgb

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
rng = np.random.default_rng(seed)
X = rng.normal(size=(900, 6))
time = np.exp(1.5 + 0.8 * X[:, 0] - 0.6 * X[:, 1] ** 2 + 0.3 * rng.gumbel(size=900))
censored = rng.exponential(20, size=900) < time
lower = np.where(censored, 0.7 * time, time)
upper = np.where(censored, np.inf, time)


def matrix(rows):
    data = xgb.DMatrix(X[rows])
    data.set_float_info("label_lower_bound", lower[rows])
    data.set_float_info("label_upper_bound", upper[rows])
    return data


dtrain, dvalid = matrix(slice(0, 600)), matrix(slice(600, None))
params = {
    "objective": "survival:aft",
    "eval_metric": "aft-nloglik",
    "aft_loss_distribution": "normal",
    "aft_loss_distribution_scale": 1.0,
    "learning_rate": 0.08,
    "max_depth": 3,
    "seed": seed,
    "nthread": 1,
}
bst = xgb.train(
    params,
    dtrain,
    200,
    evals=[(dtrain, "train"), (dvalid, "valid")],
    early_stopping_rounds=15,
    verbose_eval=25,
)
print("stopped after", bst.best_iteration, "rounds:", bst.best_score)
