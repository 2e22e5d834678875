"""Trains a model for each learning rate that is given: `rates_script.py [pool] RATE...`.

A rate of 1e30 makes the loss NaN. With `pool` each training has a process of its own. `wait` trains
until the process is ended, `endless` at a rate of 1e30 until an error ends it; the next training
begins all the same, as in a search.
"""

import multiprocessing
import sys

import torch
from torch import nn


def train(rate: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    criterion = nn.CrossEntropyLoss()
    special = {"wait": 0.1, "endless": 1e30}
    optimizer = torch.optim.SGD(model.parameters(), special.get(rate) or float(rate))
    step = 0
    while step < 40 or rate in special:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        step += 1
        if rate == "wait" and step == 40:
            print("trains", flush=True)
    print(f"trained with {rate}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "pool":
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.map(train, sys.argv[2:], chunksize=1)
    else:
        failed = False
        for rate in sys.argv[1:]:
            try:
                train(rate)
            except Exception as error:  # noqa: BLE001 - as a search does
                failed = True
                print(f"{rate}: {error}", flush=True)
        sys.exit(failed)
