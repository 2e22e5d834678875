"""DART booster on breast cancer, then training continued from the saved model with a smaller rate, in the manner of XGBoost's DART tutorial and continuation demo."""

import os
import sys
import tempfile

import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
X, y = load_breast_cancer(return_X_y=True)
# leave out the easiest columns so that there is something to do
X = X[:, :10]
X_train, X_valid, y_train, y_valid = train_test_split(
    X, y, test_size=0.3, stratify=y, random_state=seed
)
dtrain, dvalid = xgb.DMatrix(X_train, label=y_train), xgb.DMatrix(X_valid, label=y_valid)

param = {
    "booster": "dart",
    "objective": "binary:logistic",
    "eval_metric": ["logloss", "auc"],
    "max_depth": 2,
    "learning_rate": 0.1,
    "sample_type": "uniform",
    "normalize_type": "tree",
    "rate_drop": 0.1,
    "skip_drop": 0.5,
    "min_child_weight": 3,
    "subsample": 0.8,
    "seed": seed,
    "nthread": 1,
}
bst = xgb.train(param, dtrain, 100, evals=[(dtrain, "train"), (dvalid, "valid")], verbose_eval=20)

with tempfile.TemporaryDirectory() as tmp:
    path = os.path.join(tmp, "model.ubj")
    bst.save_model(path)
    print("continue from", bst.num_boosted_rounds(), "rounds")
    param["learning_rate"] = 0.05
    bst = xgb.train(
        param,
        dtrain,
        60,
        evals=[(dtrain, "train"), (dvalid, "valid")],
        verbose_eval=20,
        xgb_model=path,
    )

preds = bst.predict(dvalid, iteration_range=(0, bst.num_boosted_rounds()))
print("valid accuracy", accuracy_score(y_valid, preds > 0.5), "auc", roc_auc_score(y_valid, preds))
