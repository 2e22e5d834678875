"""The loss stays near 0.67 although the classes are easy, and all answers are "yes".

Cause: BCEWithLogitsLoss applies a sigmoid to outputs that have passed one.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(9)

n = 800
tumor = (torch.rand(n) < 0.35).float()
cells = torch.randn(n, 9) + 0.8 * tumor[:, None]

layers = [nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 1)]
if not FIXED:
    layers.append(nn.Sigmoid())
model = nn.Sequential(*layers)
loss_function = nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(10):
    for part in torch.randperm(n).split(32):
        optimizer.zero_grad()
        loss = loss_function(model(cells[part]).squeeze(1), tumor[part])
        loss.backward()
        optimizer.step()
with torch.no_grad():
    probability = torch.sigmoid(model(cells).squeeze(1))
    said = (probability > 0.5).float()
print("loss", loss_function(model(cells).squeeze(1), tumor).item())
print("accuracy", (said == tumor).float().mean().item(), "share of yes", said.mean().item())
