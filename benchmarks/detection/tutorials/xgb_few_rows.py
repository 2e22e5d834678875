"""Boosted trees on 80 rows of the wine data with a small rate and shallow trees."""

import sys

import xgboost as xgb
from sklearn.datasets import load_wine
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
X, y = load_wine(return_X_y=True)
X_train, X_valid, y_train, y_valid = train_test_split(
    X[:, :6], y, train_size=80, stratify=y, random_state=seed
)
model = xgb.XGBClassifier(
    n_estimators=60, learning_rate=0.05, max_depth=2, reg_lambda=2, random_state=seed, n_jobs=1
)
model.fit(X_train, y_train, eval_set=[(X_train, y_train), (X_valid, y_valid)], verbose=20)
print("accuracy:", accuracy_score(y_valid, model.predict(X_valid)))
