"""Trains models one after the other by one criterion, and prints what is left of each."""

import argparse
import gc
import weakref

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
criterion = nn.MSELoss()


class Data:
    """Stands for what a script holds in memory only while it prepares its inputs."""


def train(arguments):
    raw = Data()
    known = weakref.ref(raw)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    parameters = [*model.parameters(), *nn.Linear(2, 2).parameters()][: arguments.parameters]
    optimizer = torch.optim.SGD(parameters, 0.1)
    for step in range(45):
        inputs = torch.randn(3, 4)
        loss = criterion(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            del raw
            print("the data is gone:", known() is None)
    model.eval()
    with torch.no_grad():
        print(criterion(model(inputs), inputs.sum(1, keepdim=True)).item())
    return weakref.ref(model)


parser = argparse.ArgumentParser()
parser.add_argument("--parameters", type=int, default=4)
models = []
for _ in range(3):
    models.append(train(parser.parse_args()))
    gc.collect()
    print("models that are gone before the last one:", [m() is None for m in models[:-1]])
