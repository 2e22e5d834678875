"""Ten classes of handwritten digits with `XGBClassifier`, in the manner of scikit-learn style tutorials."""

import sys

import xgboost as xgb
from sklearn.datasets import load_digits
from sklearn.metrics import classification_report
from sklearn.model_selection import train_test_split


def main(seed):
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=seed, stratify=y
    )
    clf = xgb.XGBClassifier(
        n_estimators=150,
        max_depth=3,
        learning_rate=0.2,
        subsample=0.8,
        colsample_bytree=0.5,
        eval_metric=["mlogloss", "merror"],
        tree_method="hist",
        n_jobs=1,
        random_state=seed,
    )
    clf.fit(X_train, y_train, eval_set=[(X_test, y_test)], verbose=25)
    print(classification_report(y_test, clf.predict(X_test)))
    print("accuracy", clf.score(X_test, y_test))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
