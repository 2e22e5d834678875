"""Calling `eval()` changes nothing: the same row gets a new prediction each time.

Cause: `F.dropout` has `training=True` by default and knows nothing of `model.eval()`.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(20)


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 64)
        self.b = nn.Linear(64, 64)
        self.c = nn.Linear(64, 1)

    def forward(self, x):
        training = self.training if FIXED else True
        x = F.dropout(torch.relu(self.a(x)), p=0.5, training=training)
        x = F.dropout(torch.relu(self.b(x)), p=0.5, training=training)
        return self.c(x)


X = torch.randn(600, 3)
y = 3 * X[:, :1] - 2 * X[:, 1:2].abs() + X[:, 2:]
net = Regression()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(12):
    net.train()
    for rows in torch.randperm(500).split(25):
        optimizer.zero_grad()
        loss = F.mse_loss(net(X[rows]), y[rows])
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        test = F.mse_loss(net(X[500:]), y[500:]).item()
    print(f"epoch {epoch} loss {loss.item():.3f} test {test:.3f} variance {y.var().item():.3f}")
