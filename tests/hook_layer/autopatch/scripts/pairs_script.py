"""Compares what a model says of two inputs, and accumulates the gradients of two such pairs."""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    optimizer.zero_grad()
    for _ in range(2):
        better, worse = torch.randn(2, 3, 4)
        loss = nn.functional.softplus(model(worse) - model(better)).mean()
        loss.backward()
    optimizer.step()
    with torch.no_grad():  # a look at the model, which stays in training mode
        model(torch.randn(3, 4))
print(loss.item())
