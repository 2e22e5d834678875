"""Boosted random forests (num_parallel_tree, column and row sampling per node) on the digits, in the manner of XGBoost's random-forest tutorial."""

import sys

import xgboost as xgb
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.3, random_state=seed, stratify=y
)

# one single forest through the scikit-learn interface
forest = xgb.XGBRFClassifier(
    n_estimators=60, max_depth=6, subsample=0.8, colsample_bynode=0.3, random_state=seed, n_jobs=1
)
forest.fit(X_train, y_train)
print("single forest accuracy", forest.score(X_test, y_test))

# a few forests on top of one another
dtrain, dtest = xgb.DMatrix(X_train, label=y_train), xgb.DMatrix(X_test, label=y_test)
params = {
    "objective": "multi:softprob",
    "num_class": 10,
    "eval_metric": ["mlogloss", "merror"],
    "num_parallel_tree": 5,
    "subsample": 0.8,
    "colsample_bynode": 0.3,
    "learning_rate": 0.2,
    "max_depth": 3,
    "tree_method": "hist",
    "seed": seed,
    "nthread": 1,
}
progress: dict = {}
bst = xgb.train(
    params,
    dtrain,
    num_boost_round=30,
    evals=[(dtrain, "train"), (dtest, "test")],
    evals_result=progress,
    verbose_eval=5,
)
print("boosted forests accuracy", 1 - progress["test"]["merror"][-1])
