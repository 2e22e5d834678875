"""Each epoch starts again with the loss of the first one.

Cause: `model.apply(init_weights)` stands inside the loop over epochs.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(19)


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.xavier_uniform_(m.weight)
        m.bias.data.fill_(0.01)


X = torch.rand(600, 3) * 2 - 1
y = torch.sin(4 * X[:, :1]) * X[:, 1:2] + X[:, 2:]
model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
model.apply(init_weights)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

for epoch in range(15):
    if not FIXED:
        model.apply(init_weights)
    first = None
    for batch in torch.randperm(600).split(50):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(X[batch]), y[batch])
        first = loss.item() if first is None else first
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: first batch {first:.4f}, last batch {loss.item():.4f}")
print("variance", y.var().item())
