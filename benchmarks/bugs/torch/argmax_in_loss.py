"""The loss jumps around without a trend; `requires_grad_()` was needed to silence an error.

Cause: the loss compares the class numbers of `argmax`, which have no gradient.
"""

import sys

import torch
import torch.nn as nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(17)

centre = torch.randn(5, 10) * 1.5
target = torch.randint(0, 5, (800,))
X = centre[target] + torch.randn(800, 10)

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
opt = torch.optim.Adam(model.parameters(), lr=0.005)

for i in range(160):
    idx = torch.randint(0, 800, (40,))
    output = model(X[idx])
    if FIXED:
        loss = nn.CrossEntropyLoss()(output, target[idx])
    else:
        predicted = output.argmax(dim=1).float()
        loss = nn.MSELoss()(predicted, target[idx].float())
        loss.requires_grad_(True)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 40 == 0:
        print(i, loss.item())
print("loss", loss.item(), "accuracy", (model(X).argmax(1) == target).float().mean().item())
