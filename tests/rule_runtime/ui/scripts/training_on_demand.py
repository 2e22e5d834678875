"""A real training that goes as far as it is told to on standard input; argument: its folder.

`N` trains N steps, `sick` makes the learning rate far too high, `end` ends.
"""

import sys

import torch
from torch import nn

import hook_layer.pytorch as smd

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(16, 16), nn.ReLU())])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
hook = smd.Hook(
    sys.argv[1],
    include_collections=["weights", "gradients", "losses"],
    save_config=smd.SaveConfig(save_interval=1),
)
hook.register_module(model)
hook.register_loss(criterion)
inputs, labels = torch.randn(64, 16), torch.randint(0, 16, (64,))
for line in sys.stdin:
    command = line.strip()
    if command == "end":
        break
    if command == "sick":
        optimizer.param_groups[0]["lr"] = 1e12
        continue
    for _ in range(int(command)):
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()
hook.close()
