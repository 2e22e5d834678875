"""Only the last layer's weights change; the encoder stays as it was initialised.

Cause: the forward pass takes `.data` of the encoder's output, which cuts the graph.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(4)


class TwoStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 2), nn.Tanh())
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        code = self.encoder(x)
        if not FIXED:
            code = code.data
        return self.head(code)


X = torch.randn(800, 10)
y = ((X[:, 0] - X[:, 4] + X[:, 7]) > 0).float().unsqueeze(1)
model = TwoStage()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(10):
    for idx in torch.randperm(800).split(40):
        optimizer.zero_grad()
        loss = criterion(model(X[idx]), y[idx])
        loss.backward()
        optimizer.step()
accuracy = ((model(X) > 0) == (y > 0.5)).float().mean()
print("loss", loss.item(), "accuracy", accuracy.item())
