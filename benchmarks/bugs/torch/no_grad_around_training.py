"""`backward` raised "does not require grad"; with `requires_grad_()` it runs, but nothing changes.

Cause: the forward pass of training stands below `torch.no_grad()`.
"""

import sys
from contextlib import nullcontext

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(13)

days = torch.arange(0, 60, 0.1)
series = torch.sin(days) + 0.05 * torch.randn(600)
windows = series.unfold(0, 21, 1)
X, y = windows[:, :20], windows[:, 20:]

model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
mode = nullcontext() if FIXED else torch.no_grad()

for epoch in range(10):
    for batch in torch.randperm(len(X)).split(32):
        optimizer.zero_grad()
        with mode:
            loss = ((model(X[batch]) - y[batch]) ** 2).mean()
        if not loss.requires_grad:
            loss.requires_grad_()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
print("variance", y.var().item(), "mse", ((model(X) - y) ** 2).mean().item())
