"""Gradient boosted trees on the breast cancer table with the native interface, evals and early stopping, in the manner of XGBoost's get started pages."""

import sys

import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
data = load_breast_cancer()
X_train, X_rest, y_train, y_rest = train_test_split(
    data.data, data.target, test_size=0.4, stratify=data.target, random_state=seed
)
X_valid, X_test, y_valid, y_test = train_test_split(
    X_rest, y_rest, test_size=0.5, stratify=y_rest, random_state=seed
)

dtrain = xgb.DMatrix(X_train, label=y_train, feature_names=list(data.feature_names))
dvalid = xgb.DMatrix(X_valid, label=y_valid, feature_names=list(data.feature_names))
dtest = xgb.DMatrix(X_test, label=y_test, feature_names=list(data.feature_names))

params = {
    "objective": "binary:logistic",
    "eval_metric": ["error", "logloss"],
    "max_depth": 3,
    "eta": 0.05,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "seed": seed,
    "nthread": 1,
}
bst = xgb.train(
    params,
    dtrain,
    num_boost_round=400,
    evals=[(dtrain, "train"), (dvalid, "valid")],
    early_stopping_rounds=20,
    verbose_eval=25,
)
pred = bst.predict(dtest, iteration_range=(0, bst.best_iteration + 1))
print("best iteration", bst.best_iteration, "best valid logloss", bst.best_score)
print("test accuracy", accuracy_score(y_test, pred > 0.5))
