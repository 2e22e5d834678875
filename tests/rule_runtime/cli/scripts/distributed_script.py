"""`sick_script.py` on several workers; its argument: how many steps."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
layers = [part for _ in range(12) for part in (nn.Linear(16, 16), nn.Sigmoid())]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(16, 3)))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
inputs, labels = torch.randn(64, 16), torch.randint(0, 3, (64,))
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    criterion(model(inputs), labels).backward()
    optimizer.step()
print("trained to the end")
