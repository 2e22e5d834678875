"""Boosted trees with scikit-learn's interface on the Friedman 1 function, `XGBRegressor` with early stopping, in the manner of machine learning courses."""

import sys

from sklearn.datasets import make_friedman1
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
X, y = make_friedman1(n_samples=2500, n_features=10, noise=1.0, random_state=seed)
X_train, X_valid, y_train, y_valid = train_test_split(X, y, train_size=0.8, random_state=seed)

my_model = XGBRegressor(
    n_estimators=600,
    learning_rate=0.05,
    max_depth=4,
    subsample=0.8,
    min_child_weight=3,
    reg_lambda=2.0,
    early_stopping_rounds=25,
    n_jobs=1,
    random_state=seed,
)
my_model.fit(X_train, y_train, eval_set=[(X_train, y_train), (X_valid, y_valid)], verbose=50)

predictions = my_model.predict(X_valid)
print("Mean Absolute Error:", mean_absolute_error(y_valid, predictions))
print("R2:", r2_score(y_valid, predictions))
