"""Trains with two frameworks, one after the other."""

import sys

import numpy as np
import torch
import xgboost

torch.set_num_threads(1)
inputs = np.arange(12.0).reshape(6, 2)


def with_torch():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    for _ in range(3):
        loss = model(torch.tensor(inputs, dtype=torch.float32)).square().mean()
        loss.backward()
    return loss.item()


def with_xgboost():
    data, log = xgboost.DMatrix(inputs, inputs[:, 0]), {}
    evals = [(data, "train")]
    xgboost.train({"nthread": 1}, data, 3, evals=evals, evals_result=log, verbose_eval=False)
    return log["train"]["rmse"][-1]


trainings = [with_torch, with_xgboost]
print([training() for training in (trainings if sys.argv[1] == "torch first" else trainings[::-1])])
