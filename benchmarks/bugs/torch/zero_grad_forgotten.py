"""The loss of the regression swings up and down and does not settle.

Cause: gradients are never set to zero, so each step uses their sum.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(2)

x = torch.linspace(-2, 2, 400).unsqueeze(1)
y = x.pow(3) - 2 * x + 0.1 * torch.randn(x.size())

net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
loss_func = nn.MSELoss()

for t in range(300):
    prediction = net(x)
    loss = loss_func(prediction, y)
    if FIXED:
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if t % 50 == 0:
        print(t, loss.item())
print("variance", y.var().item(), "loss", loss.item())
