"""Boosts for a very long time, unless a rule asks for the end, as it does in the fourth round.

It asks again every 1,000 rounds: the first time may be taken for an earlier run's.
"""

import json
import sys
from pathlib import Path

import numpy as np
import xgboost

inputs = np.arange(12.0).reshape(6, 2)
data = xgboost.DMatrix(inputs, inputs[:, 0])
rounds = []


def metric(predictions, _):
    rounds.append(predictions)
    if len(rounds) % 1000 == 4:
        reason = f"the loss is bad in round {len(rounds)}"
        Path(sys.argv[1], "stop.json").write_text(json.dumps({"Reason": reason}))
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
