"""The biases learn, but the weights of my own layer are the same after training.

Cause: `nn.Parameter(...) * 0.1` is a plain tensor, so the module does not register it.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(29)


class MyLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        if FIXED:
            self.weight = nn.Parameter(torch.randn(n_in, n_out) * 0.3)
        else:
            self.weight = nn.Parameter(torch.randn(n_in, n_out)) * 0.3
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


x = torch.randn(600, 5)
y = (x[:, :2].norm(dim=1) > x[:, 2:].norm(dim=1)).long()
net = nn.Sequential(MyLinear(5, 24), nn.Tanh(), MyLinear(24, 24), nn.Tanh(), MyLinear(24, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(12):
    for idx in torch.randperm(600).split(40):
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    print(epoch, loss.item())
print("accuracy", (net(x).argmax(1) == y).float().mean().item())
