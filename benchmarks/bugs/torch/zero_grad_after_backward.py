"""Everything is called: zero_grad, backward, step. The loss never moves.

Cause: `zero_grad` stands between `backward` and `step`, so the optimizer sees no gradients.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(27)

X = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])

model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

for epoch in range(300):
    loss = criterion(model(X), Y)
    if FIXED:
        optimizer.zero_grad()
        loss.backward()
    else:
        loss.backward()
        optimizer.zero_grad()
    optimizer.step()
    if epoch % 50 == 0:
        print(epoch, loss.item())
print("loss", loss.item(), "predictions", model(X).detach().flatten().tolist())
