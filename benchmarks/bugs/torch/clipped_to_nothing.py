"""The loss wanders around its first value, with each learning rate I tried.

Cause: gradients are clipped to a norm of 1e-6, meant as the epsilon of the optimizer.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(18)

model = nn.LSTM(1, 24, batch_first=True)
head = nn.Linear(24, 1)
parameters = list(model.parameters()) + list(head.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
max_norm = 1.0 if FIXED else 1e-6

losses = []
for step in range(200):
    x = torch.rand(32, 8, 1)
    y = x[:, :, 0].sum(dim=1, keepdim=True) - 4
    out, _ = model(x)
    loss = nn.functional.mse_loss(head(out[:, -1]), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    losses.append(loss.item())
print("first 20", sum(losses[:20]) / 20, "last 20", sum(losses[-20:]) / 20)
