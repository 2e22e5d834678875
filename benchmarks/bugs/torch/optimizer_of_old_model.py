"""The loss is the same in each epoch up to the order of the batches.

Cause: the head is replaced after the optimizer was made, and the other layers are frozen.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
torch.manual_seed(3)

features = torch.randn(640, 16)
classes = (features[:, 0] > 0).long() + 2 * (features[:, 1] > 0).long()
loader = DataLoader(TensorDataset(features, classes), batch_size=32, shuffle=True)

backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
for parameter in backbone.parameters():
    parameter.requires_grad = False
model = nn.Sequential(backbone, nn.Linear(64, 1000))

if FIXED:
    model[1] = nn.Linear(64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
else:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model[1] = nn.Linear(64, 4)

criterion = nn.CrossEntropyLoss()
for epoch in range(8):
    total = 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
print("accuracy", (model(features).argmax(1) == classes).float().mean().item())
