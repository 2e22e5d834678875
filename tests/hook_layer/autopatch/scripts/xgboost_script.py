"""Two trainings of XGBoost: its own interface and that of scikit-learn, in the order asked for."""

import json
import sys

import numpy as np
import xgboost
from xgboost import train

random = np.random.default_rng(0)
inputs = random.normal(size=(200, 4))
labels = inputs[:, 0] * 2 + inputs[:, 1] ** 2
data = xgboost.DMatrix(inputs, labels)


def own_interface():
    log = {}
    train(
        {"eta": 0.3, "max_depth": 2, "nthread": 1},
        data,
        5,
        evals=[(data, "train")],
        evals_result=log,
    )
    return log["train"]["rmse"]


def scikit_learn():
    model = xgboost.XGBRegressor(n_estimators=5, learning_rate=0.5, max_depth=2, n_jobs=1)
    model.fit(inputs, labels, eval_set=[(inputs, labels)], verbose=False)
    return model.evals_result()["validation_0"]["rmse"]


print(
    json.dumps([{"own": own_interface, "sklearn": scikit_learn}[name]() for name in sys.argv[1:]])
)
