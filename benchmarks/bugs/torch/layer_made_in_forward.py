"""The loss falls a little and stays high; no setting helps.

Cause: `forward` creates a new linear layer at each call, with new random weights.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(30)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 6, 5)
        self.pool = nn.MaxPool1d(2)
        if FIXED:
            self.fc1 = nn.Linear(6 * 13, 32)
        self.fc2 = nn.Linear(32, 3)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv(x))).flatten(1)
        if FIXED:
            x = torch.relu(self.fc1(x))
        else:
            x = torch.relu(nn.Linear(x.shape[1], 32)(x))
        return self.fc2(x)


period = torch.randint(0, 3, (600,))
t = torch.arange(30).float()
wave = torch.sin(t * (0.3 + 0.3 * period[:, None]) + 6.28 * torch.rand(600, 1)).unsqueeze(1)
model = CNN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
for epoch in range(10):
    for idx in torch.randperm(600).split(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(wave[idx]), period[idx])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
print("accuracy", (model(wave).argmax(1) == period).float().mean().item())
