"""With normalised inputs the price model is no better than a constant.

Cause: mean and deviation are taken of each row (dim=1), and the year outweighs all else there.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(22)

n = 800
year = torch.randint(1950, 2020, (n,)).float()
rooms = torch.randint(1, 8, (n,)).float()
bath = torch.randint(1, 4, (n,)).float()
garage = torch.randint(0, 2, (n,)).float()
price = 0.8 * rooms + 0.5 * bath + 1.2 * garage + 0.02 * (year - 1985) + 0.2 * torch.randn(n)
table = torch.stack([year, rooms, bath, garage], dim=1)

dim = 0 if FIXED else 1
table = (table - table.mean(dim=dim, keepdim=True)) / table.std(dim=dim, keepdim=True)

model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(250):
    rows = torch.randint(0, n, (32,))
    loss = nn.functional.mse_loss(model(table[rows]).squeeze(1), price[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
mse = (model(table).squeeze(1) - price).pow(2).mean().item()
print("variance", price.var().item(), "mse", mse)
