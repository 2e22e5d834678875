"""Test accuracy is lower than it should be, and the same row gets a new answer at each call.

Cause: `model.eval()` is missing before the predictions, so dropout still removes units.
The training itself is the same in both variants.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(12)

centres = 1.2 * torch.randn(6, 8)
label = torch.randint(0, 6, (900,))
point = centres[label] + 0.6 * torch.randn(900, 8)

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.7), nn.Linear(64, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(10):
    model.train()
    for rows in torch.randperm(700).split(35):
        loss = loss_fn(model(point[rows]), label[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    if FIXED:
        model.eval()
    correct = 0
    with torch.no_grad():
        for i in range(700, 900, 20):
            correct += (model(point[i : i + 20]).argmax(1) == label[i : i + 20]).sum().item()
    print(f"epoch {epoch} loss {loss.item():.3f} test accuracy {correct / 200:.3f}")
