"""A training on two ranks that forgets to average the gradients of a layer.

torchrun --nproc-per-node 2 -m tests.e2e.diverging_training
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

import hook_layer.pytorch as smd


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    hook = smd.Hook.create_from_json_file()
    hook.register_module(net)
    torch.manual_seed(dist.get_rank() + 1)
    inputs = torch.randn(300, 5)
    labels = (inputs[:, 0] > 0).long()
    for _ in range(31):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        for name, parameter in net.named_parameters():
            if not name.startswith("1."):
                assert parameter.grad is not None
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(dist.get_world_size())
        optimizer.step()
    hook.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
