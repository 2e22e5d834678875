"""The loss falls in the first epoch, rises after it and is nan some epochs later.

Cause: `validate` calls `model.eval()`, and nothing calls `model.train()` again.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(11)

blob = torch.randint(0, 6, (700,))
x = 20 + 3 * torch.randn(6, 10)[blob] + 3 * torch.randn(700, 10)
y = blob % 3
train, valid = slice(0, 500), slice(500, 700)

model = nn.Sequential(nn.BatchNorm1d(10))
for n_in, n_out in ((10, 64), (64, 64), (64, 64), (64, 64)):
    model.extend(nn.Sequential(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU()))
model.append(nn.Linear(64, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def validate():
    model.eval()
    with torch.no_grad():
        output = model(x[valid])
    return criterion(output, y[valid]).item(), (output.argmax(1) == y[valid]).float().mean().item()


model.train()
for epoch in range(10):
    if FIXED:
        model.train()
    for i in range(0, 500, 25):
        optimizer.zero_grad()
        loss = criterion(model(x[i : i + 25]), y[i : i + 25])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), validate())
