"""The loss is exactly 0 from the first step on, and the model predicts nothing useful.

Cause: CrossEntropyLoss on one output and float targets; the softmax of one score is always 1.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(23)

X = torch.randn(640, 7)
churn = ((X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * torch.randn(640)) > 0).float().unsqueeze(1)


class Churn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.body(x))


model = Churn()
loss_fn = nn.BCEWithLogitsLoss() if FIXED else nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
for epoch in range(12):
    running = 0.0
    for idx in torch.randperm(640).split(32):
        optimizer.zero_grad()
        loss = loss_fn(model(X[idx]), churn[idx])
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(epoch, running / 20)
print("accuracy", ((model(X) > 0).float() == churn).float().mean().item())
