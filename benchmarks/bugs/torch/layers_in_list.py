"""The deeper the network, the worse it gets; counting its parameters shows far too few.

Cause: hidden layers are kept in a Python list, so `parameters()` does not contain them.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(10)


class DeepNet(nn.Module):
    def __init__(self, depth=5, width=24):
        super().__init__()
        self.first = nn.Linear(6, width)
        hidden = [nn.Linear(width, width) for _ in range(depth)]
        self.hidden = nn.ModuleList(hidden) if FIXED else hidden
        self.last = nn.Linear(width, 5)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.last(x)


y = torch.randint(0, 5, (1000,))
x = torch.randn(5, 6)[y] * 1.3 + 0.8 * torch.randn(1000, 6)
net = DeepNet()
print("parameters", sum(p.numel() for p in net.parameters()))
optimizer = torch.optim.Adam(net.parameters(), lr=0.002)
for step in range(200):
    pick = torch.randint(0, 1000, (50,))
    loss = nn.functional.cross_entropy(net(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item(), "accuracy", (net(x).argmax(1) == y).float().mean().item())
