"""A classifier on two ranks; argument: what it does, `ddp`, `fsdp2` or a fault."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

what = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
model: nn.Module = net
if what == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    fully_shard(net)
elif what != "no all-reduce":
    model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
torch.manual_seed(rank + 1)
for step in range(61):
    inputs = torch.randn(64, 8)
    labels = (inputs[:, :3] + 0.5 * torch.randn(64, 3)).argmax(1)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), labels)
    if what == "NaN" and step == 30 and rank == 1:
        loss = loss * float("nan")
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
