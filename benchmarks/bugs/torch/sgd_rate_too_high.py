"""The loss is nan before the first epoch ends.

Cause: a learning rate of 0.1 for a regression whose inputs are up to 100.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(14)

speed = torch.rand(500, 1) * 100
distance = 0.3 * speed + 5 + torch.randn(500, 1)

model = nn.Linear(1, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4 if FIXED else 1e-1)

for epoch in range(5):
    for i in range(0, 500, 25):
        x, y = speed[i : i + 25], distance[i : i + 25]
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item()}")
print("variance", distance.var().item())
