"""Asks a part of the model for a shape, before it makes the model."""

import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
kind = sys.argv[1]


class Features(nn.Conv1d):
    pass


class Net(nn.Sequential):
    pass


features = Features(1, 2, 3)
size = features(torch.zeros(1, 1, 8)).numel()
if kind == "twice":
    nn.Linear(1, 1)(torch.zeros(1))
net = Net(features, nn.Flatten(), nn.Linear(size, 1))
if kind == "frozen":
    features.requires_grad_(requires_grad=False)
criterion = nn.MSELoss()
if kind != "by hand":
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1)
for _ in range(5):
    inputs = torch.randn(3, 1, 8)
    loss = criterion(net(inputs), torch.ones(3, 1))
    net.zero_grad()
    loss.backward()
    if kind == "by hand":
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(0.1 * parameter.grad)
    else:
        optimizer.step()
print(loss.item())
