"""The three-layer network on a chessboard pattern is as good as a coin.

Cause: nothing between the linear layers, so the network is one linear function.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(6)


class MLP(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.linear1 = nn.Linear(2, width)
        self.linear2 = nn.Linear(width, width)
        self.linear3 = nn.Linear(width, 2)

    def forward(self, x):
        if FIXED:
            x = torch.relu(self.linear1(x))
            x = torch.relu(self.linear2(x))
        else:
            x = self.linear1(x)
            x = self.linear2(x)
        return self.linear3(x)


xy = torch.rand(1000, 2) * 3
board = (xy.long().sum(dim=1)) % 2
model = MLP()
loss_fn = nn.CrossEntropyLoss()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(300):
    batch = torch.randint(0, 1000, (64,))
    loss = loss_fn(model(xy[batch]), board[batch])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item(), "accuracy", (model(xy).argmax(1) == board).float().mean().item())
