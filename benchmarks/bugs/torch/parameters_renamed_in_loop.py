"""Gradient descent by hand: the gradients are right, but the weights stay the same.

Cause: `p = p - lr * p.grad` binds the name of the loop to a new tensor; `p` itself is unchanged.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(33)

x = torch.randn(500, 3)
y = x @ torch.tensor([[2.0], [-1.0], [0.5]]) + torch.relu(x[:, :1])
model = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
learning_rate = 0.02

for t in range(250):
    idx = torch.randint(0, 500, (25,))
    loss = ((model(x[idx]) - y[idx]) ** 2).mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            if FIXED:
                p -= learning_rate * p.grad
            else:
                p = p - learning_rate * p.grad
    if t % 50 == 0:
        print(t, loss.item())
print("variance", y.var().item(), "loss", loss.item())
