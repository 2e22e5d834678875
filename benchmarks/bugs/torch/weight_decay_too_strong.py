"""The loss falls to log(4) and rests there; all weights are tiny.

Cause: `weight_decay=1` in Adam; the decay outweighs the gradient of the loss.
"""

import sys

import torch
from torch import nn, optim

FIXED = "--fixed" in sys.argv
torch.manual_seed(28)

quadrant = torch.randn(700, 2)
label = (quadrant[:, 0] > 0).long() * 2 + (quadrant[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = optim.Adam(model.parameters(), lr=0.005, weight_decay=1e-5 if FIXED else 1)
loss_fn = nn.CrossEntropyLoss()

model.train()
for epoch in range(10):
    seen, right = 0, 0
    for idx in torch.randperm(700).split(35):
        out = model(quadrant[idx])
        loss = loss_fn(out, label[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(idx)
        right += (out.argmax(dim=1) == label[idx]).sum().item()
    print(f"Epoch {epoch}: loss {loss.item():.4f}, accuracy {right / seen:.3f}")
