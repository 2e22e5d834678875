"""A classifier on two ranks; argument: what it does, `ddp`, `fsdp2`, `pipeline` or `faults`."""

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
if what == "pipeline":
    # Stages that begin alike, and are no replicas.
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    stage = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
    one = PipelineStage(stage, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(one, 4, loss_fn=cross_entropy)
    optimizer = torch.optim.AdamW(stage.parameters(), 1e-2)
    for _ in range(61):
        inputs = torch.randn(64, 32)
        optimizer.zero_grad()
        labels = inputs.argmax(1)
        schedule.step(inputs) if rank == 0 else schedule.step(target=labels, losses=[])
        optimizer.step()
    dist.destroy_process_group()
    sys.exit()
model: nn.Module = net
if what == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    fully_shard(net)
elif what == "faults":  # the last layer is not averaged, and a loss is NaN
    model = nn.Sequential(nn.parallel.DistributedDataParallel(net[:3]), net[3])
else:
    model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
torch.manual_seed(rank + 1)
for step in range(61):
    inputs = torch.randn(64, 8)
    labels = (inputs[:, :3] + 0.5 * torch.randn(64, 3)).argmax(1)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), labels)
    if what == "faults" and step == 30 and rank == 1:
        loss = loss * float("nan")
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
