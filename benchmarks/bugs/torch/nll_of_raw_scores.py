"""The loss is negative and falls without end, but the accuracy gets no better.

Cause: NLLLoss expects log-probabilities, and the model returns raw scores.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(1)

proto = torch.rand(10, 1, 14, 14)
target = torch.randint(0, 10, (800,))
images = proto[target] + 0.3 * torch.randn(800, 1, 14, 14)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, stride=2)
        self.fc = nn.Linear(8 * 6 * 6, 10)

    def forward(self, x):
        x = F.relu(self.conv(x)).flatten(1)
        x = self.fc(x)
        return F.log_softmax(x, dim=1) if FIXED else x


model = ConvNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    for batch in torch.randperm(800).split(40):
        optimizer.zero_grad()
        loss = F.nll_loss(model(images[batch]), target[batch])
        loss.backward()
        optimizer.step()
with torch.no_grad():
    correct = (model(images).argmax(dim=1) == target).float().mean()
print(f"loss {loss.item():.3f} accuracy {correct:.3f}")
