"""Trains a small classifier with XGBoost's scikit-learn interface; nothing of Stepwatch in it."""

from small_task import LEARNING_RATE, NUM_BATCHES, NUM_EPOCHS, load, timed
from xgboost import XGBClassifier

features, labels = load()
model = XGBClassifier(
    n_estimators=NUM_EPOCHS * NUM_BATCHES, learning_rate=LEARNING_RATE, max_depth=3, n_jobs=1
)
with timed():
    model.fit(features, labels, eval_set=[(features, labels)], verbose=False)
print("final loss", model.evals_result()["validation_0"]["mlogloss"][-1])
