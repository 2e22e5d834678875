"""All predictions are about the mean of the targets; PyTorch prints a warning about sizes.

Cause: MSELoss of outputs (n, 1) and targets (n,) compares each output with each target.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = "--fixed" in sys.argv
torch.manual_seed(7)


class Houses(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 5)
        self.y = self.x @ torch.tensor([0.5, -1.0, 0.3, 0.0, 0.8]) + 0.1 * torch.randn(n)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


houses = Houses(640)
model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
mse = nn.MSELoss()
for epoch in range(8):
    for x, y in DataLoader(houses, batch_size=32, shuffle=True):
        output = model(x)
        loss = mse(output, y.unsqueeze(1)) if FIXED else mse(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
error = (model(houses.x).squeeze(1) - houses.y).pow(2).mean().item()
print("variance", houses.y.var().item(), "loss", loss.item(), "real mse", error)
