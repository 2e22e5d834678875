"""XGBClassifier on one rare class in fifty, with scale_pos_weight and early stopping on the area under the precision-recall curve, in the manner of XGBoost's notes on imbalanced data."""

import sys

import xgboost as xgb
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
X, y = make_classification(
    1600, 12, n_informative=6, weights=[0.985], class_sep=1.5, flip_y=0.005, random_state=seed
)
X_train, X_valid, y_train, y_valid = train_test_split(
    X, y, test_size=0.3, stratify=y, random_state=seed
)
model = xgb.XGBClassifier(
    n_estimators=200,
    learning_rate=0.1,
    max_depth=3,
    scale_pos_weight=float((y_train == 0).sum() / (y_train == 1).sum()),
    eval_metric=["logloss", "aucpr"],
    early_stopping_rounds=20,
    random_state=seed,
    n_jobs=1,
)
model.fit(X_train, y_train, eval_set=[(X_train, y_train), (X_valid, y_valid)], verbose=20)
print("positive rows:", int(y_train.sum()), "stopped after", model.best_iteration)
print("average precision:", average_precision_score(y_valid, model.predict_proba(X_valid)[:, 1]))
