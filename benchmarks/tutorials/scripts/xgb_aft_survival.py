"""Accelerated failure time model on censored synthetic patients, with ranking of the risks judged by concordance, in the manner of XGBoost's survival demo."""

import sys

import numpy as np
import xgboost as xgb

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
rng = np.random.default_rng(seed)

n = 1200
age = rng.normal(60, 10, n)
stage = rng.integers(1, 5, n)
marker = rng.lognormal(0, 0.5, n)
treated = rng.integers(0, 2, n)
junk = rng.normal(size=(n, 3))
X = np.column_stack([age, stage, marker, treated, junk])

log_time = (
    3.5 - 0.02 * (age - 60) - 0.4 * (stage - 2) + 0.5 * treated * (stage < 4) - 0.3 * np.log(marker)
)
time = np.exp(log_time + 0.4 * rng.normal(size=n))
censor = rng.exponential(80, n)
observed = time <= censor
y_lower = np.minimum(time, censor)
y_upper = np.where(observed, y_lower, np.inf)
print(f"{observed.mean():.2f} of the patients observed to the end")

train, valid = np.arange(n) < 900, np.arange(n) >= 900
dtrain, dvalid = xgb.DMatrix(X[train]), xgb.DMatrix(X[valid])
for d, rows in ((dtrain, train), (dvalid, valid)):
    d.set_float_info("label_lower_bound", y_lower[rows])
    d.set_float_info("label_upper_bound", y_upper[rows])


def concordance(pred, time, event):
    good = total = 0.0
    for i in np.flatnonzero(event):
        later = time > time[i]
        total += later.sum()
        good += (pred[later] > pred[i]).sum()
    return good / total


params = {
    "objective": "survival:aft",
    "eval_metric": "aft-nloglik",
    "aft_loss_distribution": "normal",
    "aft_loss_distribution_scale": 0.6,
    "tree_method": "hist",
    "learning_rate": 0.05,
    "max_depth": 3,
    "subsample": 0.8,
    "lambda": 1.0,
    "min_child_weight": 5,
    "base_score": 30.0,
    "seed": seed,
    "nthread": 1,
}
bst = xgb.train(
    params,
    dtrain,
    num_boost_round=300,
    evals=[(dtrain, "train"), (dvalid, "valid")],
    early_stopping_rounds=25,
    verbose_eval=20,
)
pred = bst.predict(dvalid, iteration_range=(0, bst.best_iteration + 1))
print(
    "best iteration",
    bst.best_iteration,
    "concordance",
    concordance(pred, y_lower[valid], observed[valid]),
)
