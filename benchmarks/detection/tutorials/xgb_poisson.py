"""Counts of bicycle rentals by hour, made up, with the objective `count:poisson`, in the manner of insurance and demand forecasting notebooks."""

import sys

import numpy as np
import pandas as pd
import xgboost as xgb

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
rng = np.random.default_rng(seed)

n = 6000
df = pd.DataFrame(
    {
        "hour": rng.integers(0, 24, n),
        "weekday": rng.integers(0, 7, n),
        "temperature": rng.normal(14, 8, n),
        "wind": rng.gamma(2.0, 4.0, n),
        "rain": (rng.random(n) < 0.2).astype(int),
    }
)
work = (df["weekday"] < 5).astype(float)
rush = np.exp(-((df["hour"] - 8) ** 2) / 4) + np.exp(-((df["hour"] - 17) ** 2) / 6)
noon = np.exp(-((df["hour"] - 14) ** 2) / 18)
rate = np.exp(
    0.6
    + 1.5 * work * rush
    + 1.2 * (1 - work) * noon
    + 0.04 * df["temperature"]
    - 0.9 * df["rain"]
    - 0.02 * df["wind"]
)
df["count"] = rng.poisson(rate)

features = ["hour", "weekday", "temperature", "wind", "rain"]
train, valid = df.iloc[:4500], df.iloc[4500:]
dtrain = xgb.DMatrix(train[features], label=train["count"])
dvalid = xgb.DMatrix(valid[features], label=valid["count"])

booster = xgb.train(
    {
        "objective": "count:poisson",
        "eval_metric": ["poisson-nloglik", "rmse"],
        "max_depth": 5,
        "eta": 0.1,
        "max_delta_step": 0.7,
        "subsample": 0.8,
        "min_child_weight": 10,
        "nthread": 1,
        "seed": seed,
    },
    dtrain,
    num_boost_round=200,
    evals=[(dtrain, "train"), (dvalid, "valid")],
    verbose_eval=25,
)
prediction = booster.predict(dvalid)
print("importance", booster.get_score(importance_type="gain"))
print("mean absolute error of the mean", (valid["count"] - train["count"].mean()).abs().mean())
print("valid mean absolute error", np.abs(valid["count"] - prediction).mean())
