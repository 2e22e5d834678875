"""Trains a head upon features of another network, whose weights nobody froze, and of torch.jit."""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Backbone(nn.Linear):
    pass


class Head(nn.Linear):
    pass


backbone, head = Backbone(4, 8), Head(8, 1)
scripted = torch.jit.script(nn.Linear(8, 8))
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(head.parameters(), 0.1)
for _ in range(4):
    with torch.no_grad():
        features = backbone(torch.randn(3, 4))
    features = scripted(features)
    loss = criterion(head(features), torch.zeros(3, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
