"""A network whose gradients vanish, in a script without a hook; its argument: how many steps."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
layers = [part for _ in range(12) for part in (nn.Linear(16, 16), nn.Sigmoid())]
model = nn.Sequential(*layers, nn.Linear(16, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
inputs, labels = torch.randn(64, 16), torch.randint(0, 3, (64,))
for step in range(int(sys.argv[1])):
    if step == 7 and "fail" in sys.argv:
        raise SystemExit(9)
    optimizer.zero_grad()
    criterion(model(inputs), labels).backward()
    optimizer.step()
print("trained to the end")
