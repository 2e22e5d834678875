"""Cross-validation of boosted trees on a made-up churn table with one positive in six, in the manner of `xgb.cv` demos."""

import sys

import numpy as np
import xgboost as xgb
from sklearn.datasets import make_classification

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
X, y = make_classification(
    n_samples=3000,
    n_features=20,
    n_informative=8,
    n_redundant=4,
    weights=[0.83],
    class_sep=0.9,
    flip_y=0.03,
    random_state=seed,
)
dtrain = xgb.DMatrix(X, label=y)
params = {
    "max_depth": 4,
    "eta": 0.1,
    "min_child_weight": 2,
    "subsample": 0.9,
    "colsample_bytree": 0.7,
    "scale_pos_weight": float(np.sqrt((y == 0).sum() / (y == 1).sum())),
    "objective": "binary:logistic",
    "nthread": 1,
    "seed": seed,
}
print("running cross validation")
res = xgb.cv(
    params,
    dtrain,
    num_boost_round=300,
    nfold=5,
    stratified=True,
    metrics={"auc", "logloss"},
    seed=seed,
    callbacks=[
        xgb.callback.EvaluationMonitor(period=25, show_stdv=True),
        xgb.callback.EarlyStopping(15, metric_name="logloss", data_name="test", save_best=False),
    ],
)
print(res.tail(3))
print("validation auc", res["test-auc-mean"].iloc[-1])
