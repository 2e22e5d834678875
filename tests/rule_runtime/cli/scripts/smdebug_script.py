"""A training for the original client, whose hook is made of the platform's file; nothing of ours.

Usage: smdebug_script.py STEPS
"""

from __future__ import annotations

import sys

import smdebug.pytorch as smd  # by the alias
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hook = smd.Hook.create_from_json_file()
hook.register_module(model)
hook.register_loss(criterion)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    criterion(model(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
    optimizer.step()
print("trained to the end")
