"""Boosts for a very long time, unless a rule asks for the end: it does so in the fourth round."""

import sys
from pathlib import Path

import numpy as np
import xgboost

inputs = np.arange(12.0).reshape(6, 2)
data = xgboost.DMatrix(inputs, inputs[:, 0])
rounds = []


def metric(predictions, _):
    rounds.append(predictions)
    if len(rounds) == 4:
        Path(sys.argv[1], "stop.json").write_text('{"Reason": "the loss is bad"}')
    return "worst", float(predictions.max())


xgboost.train(
    {"nthread": 1},
    data,
    100_000,
    evals=[(data, "train")],
    custom_metric=metric,
    verbose_eval=False,
)
print("saved the model")
