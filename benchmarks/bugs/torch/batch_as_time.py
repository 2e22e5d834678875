"""The LSTM gives the same row another class in another batch, and its accuracy is poor.

Cause: `batch_first=True` is missing, so the LSTM runs over the batch instead of the time.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(26)

n, length = 800, 16
rising = torch.randint(0, 2, (n,))
slope = (2 * rising - 1).float() * 0.12
time = torch.arange(length) - length / 2
start = 2 * torch.randn(n, 1)
X = (start + slope[:, None] * time + 0.3 * torch.randn(n, length)).unsqueeze(-1)


class LSTMClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 20, batch_first=FIXED)
        self.fc = nn.Linear(20, 2)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1, :])


model = LSTMClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(12):
    for idx in torch.randperm(n).split(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X[idx]), rising[idx])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
print("accuracy", (model(X).argmax(1) == rising).float().mean().item())
