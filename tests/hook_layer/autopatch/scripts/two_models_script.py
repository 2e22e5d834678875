"""Trains two models at a time by one criterion, and then trains the second one alone."""

import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class First(nn.Linear):
    pass


class Second(nn.Linear):
    pass


models = First(4, 2), Second(4, 2)
criterion = nn.MSELoss()
optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
for step in range(int(sys.argv[1])):
    for model, optimizer in zip(models, optimizers, strict=True):
        if step < 3 or model is models[1]:
            loss = criterion(model(torch.randn(3, 4)), torch.zeros(3, 2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
print(loss.item())
