"""The loop runs without an error, but the loss is a constant.

Cause: the loss is computed with NumPy and wrapped into a new tensor, unconnected to the model.
"""

import sys

import numpy as np
import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(5)
np.random.seed(5)

inputs = torch.rand(256, 4)
targets = (inputs.sum(dim=1, keepdim=True) - 2) * inputs[:, :1]

model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.005)


def rmse(output, target):
    if FIXED:
        return torch.sqrt(torch.mean((output - target) ** 2))
    difference = output.detach().numpy() - target.numpy()
    return torch.tensor(np.sqrt(np.mean(difference**2)), requires_grad=True)


for epoch in range(150):
    optimizer.zero_grad()
    loss = rmse(model(inputs), targets)
    loss.backward()
    optimizer.step()
    if epoch % 30 == 0:
        print(epoch, loss.item())
print("deviation", targets.std().item(), "loss", loss.item())
