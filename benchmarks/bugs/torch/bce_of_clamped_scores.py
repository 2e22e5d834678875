"""BCELoss complained about numbers outside [0, 1]; after the clamp the loss is stuck.

Cause: raw scores are clamped into [0, 1] instead of passing a sigmoid; clamped ones get no gradient.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(8)

X = torch.randn(900, 6)
y = ((X[:, 0] * X[:, 1]) + X[:, 2] > 0).float().view(-1, 1)

model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
criterion = nn.BCELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(10):
    perm = torch.randperm(900)
    for start in range(0, 900, 45):
        idx = perm[start : start + 45]
        score = model(X[idx])
        prob = torch.sigmoid(score) if FIXED else score.clamp(0, 1)
        loss = criterion(prob, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
score = model(X)
prob = torch.sigmoid(score) if FIXED else score.clamp(0, 1)
print("accuracy", ((prob > 0.5).float() == y).float().mean().item())
