"""Boosted trees on diabetes with strong regularisation (lambda, alpha, gamma), whose last trees have no split because nothing is left to learn."""

import sys

import xgboost as xgb
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
X, y = load_diabetes(return_X_y=True, scaled=False)
X_train, X_valid, y_train, y_valid = train_test_split(X, y, test_size=0.3, random_state=seed)
dtrain, dvalid = xgb.DMatrix(X_train, label=y_train), xgb.DMatrix(X_valid, label=y_valid)
params = {
    "objective": "reg:squarederror",
    "max_depth": 3,
    "eta": 0.1,
    "lambda": 50,
    "alpha": 100,
    "gamma": 20000,
    "min_child_weight": 10,
    "seed": seed,
    "nthread": 1,
}
bst = xgb.train(params, dtrain, 150, evals=[(dtrain, "train"), (dvalid, "valid")], verbose_eval=25)
empty = sum(tree.count("\n") == 1 for tree in bst.get_dump())
print("R2:", r2_score(y_valid, bst.predict(dvalid)), "trees without a split:", empty)
