"""Trains a small classifier with XGBoost; nothing of Stepwatch in it."""

import xgboost
from small_task import LEARNING_RATE, NUM_BATCHES, NUM_CLASSES, NUM_EPOCHS, load, timed

data, log = xgboost.DMatrix(*load()), {}
parameters = {
    "eta": LEARNING_RATE,
    "max_depth": 3,
    "nthread": 1,
    "num_class": NUM_CLASSES,
    "objective": "multi:softprob",
}
with timed():
    xgboost.train(
        parameters,
        data,
        NUM_EPOCHS * NUM_BATCHES,
        evals=[(data, "train")],
        evals_result=log,
        verbose_eval=False,
    )
print("final loss", log["train"]["mlogloss"][-1])
