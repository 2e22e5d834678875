"""Train on two workers with our hook, and note every value as torch has it.

    python workers_script.py RANK FOLDER DistributedDataParallel|fully_shard

Each of the two writes what it saw to FOLDER/source-RANK.npz, the hook to FOLDER/trial.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import hook_layer.pytorch as smd

SIZE = 2
MODES = (smd.modes.TRAIN, smd.modes.TRAIN, smd.modes.EVAL, smd.modes.TRAIN, smd.modes.TRAIN)


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(inputs).relu())
        return outputs


def make_hook(folder: str) -> smd.Hook:
    hook = smd.Hook(
        f"{folder}/trial",
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "biases", "gradients", "losses", "reduced"],
        include_workers="all",
    )
    reduced = hook.get_collection("reduced")
    reduced.include("first_output")
    reduced.reduction_config = smd.ReductionConfig(
        reductions=["min", "max", "sum"], norms=["l1", "l2"]
    )
    return hook


def main(rank: int, folder: str, wrapper: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=60),
    )
    torch.manual_seed(0)
    hook, net, loss = make_hook(folder), Net(), nn.CrossEntropyLoss()
    model: nn.Module = net
    if wrapper == "fully_shard":
        fully_shard(net, mesh=dist.device_mesh.init_device_mesh("cpu", (SIZE,)))
    hook.register_module(net)
    hook.register_loss(loss)
    if wrapper == "DistributedDataParallel":
        model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    torch.manual_seed(rank)
    source = {}
    for step, mode in enumerate(MODES):
        hook.set_mode(mode)
        source |= train_step(step, mode, model, loss, optimizer)
    hook.close()
    assert not hook.report().errors, hook.report()
    np.savez(f"{folder}/source-{rank}.npz", **source)
    dist.destroy_process_group()


def train_step(
    step: int,
    mode: smd.modes,
    model: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> dict[str, np.ndarray]:
    """Train or evaluate one batch, and return the values of the step by `step|tensor`."""
    net = getattr(model, "module", model)
    inputs, labels = torch.randn(8, 6), torch.randint(0, 3, (8,))
    seen = {f"Net_{name}": own(p.detach()).clone() for name, p in net.named_parameters()}
    optimizer.zero_grad()
    result = loss(model(inputs), labels)
    seen["CrossEntropyLoss_output_0"] = result.detach()
    with torch.no_grad():
        outputs = nn.functional.linear(inputs, whole(net.first.weight), whole(net.first.bias))
    for reduction in ("min", "max", "sum"):
        seen[f"first_output_0 {reduction}"] = getattr(outputs, reduction)()
    for order in (1, 2):
        seen[f"first_output_0 l{order}"] = outputs.norm(p=order)
    if mode is smd.modes.TRAIN:
        result.backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            seen[f"gradient/Net_{name}"] = own(parameter.grad).clone()
        optimizer.step()
    return {f"{step}|{name}": value.numpy().copy() for name, value in seen.items()}


def own(tensor: Tensor) -> Tensor:
    """Return what this rank has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor as it is without sharding."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
